"""An unreachable API server is logged once, with its address, however many requests fail; and once when it is back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube import retries
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches, WatchLoop
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_agent.kube.retries import LONGEST_PAUSE_SECONDS, until_done
from nodedevice_common import unauthorized
from nodedevice_common.api_exchange import Broken, Late, Request
from nodedevice_kube.api_errors import ApiError, Gone, InvalidResponse, Unauthorized, Unavailable

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer
from tests.fakes.api_client import SERVER
from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.kube.one_object import PATIENCE_SECONDS
from tests.unit.node_agent.kube.status_source import FixedStatus
from tests.unit.node_agent.kube.test_watches import RecordedEvents, watched

LOST = ("WARNING", "API server unreachable; retrying")
BACK = ("INFO", "API server reachable again")
# retries pause
pytestmark = virtual_time
REFUSED = Broken("Connection refused")


class Server(api_answers.Server):
    """Responds with a status, or raises an error; `asked`: how often."""

    def __init__(self) -> None:
        self.version = {"resourceVersion": "1"}
        self.respond(REFUSED)

    def respond(self, answer: Broken | int) -> None:
        self.answers = answer
        self.asked = 0

    def answer(self, request: Request) -> Answer:
        self.asked += 1
        if isinstance(self.answers, Broken):
            raise self.answers
        body = {"metadata": {"name": "n1", "uid": "u", **self.version}, "items": []}
        return json_answer(body, self.answers)

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.asked < times:
                await asyncio.sleep(1)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of the lines at the default level."""
    ours = [r for r in caplog.records if r.name.startswith("nodedevice_agent") and r.levelno >= logging.INFO]
    return [(record.levelname, record.getMessage()) for record in ours]


async def every_request(cluster: KubeClient) -> None:
    """Every part of the agent that retries requests."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(until_done(lambda: cluster.node_uid("n1")))
        tasks.create_task(Watches(cluster).follow("pods", PodObject, {}, RecordedEvents()))
        tasks.create_task(LeaseKeeper(cluster, "ns", "n1", "me", Rejections(), AgentHealth()).run())
        for name in ("example.com/a", "example.com/b"):
            tasks.create_task(NodeDeviceSync(FixedStatus(cluster), name).run())


async def test_a_lost_connection_is_logged_once_with_the_address_and_once_when_it_is_back(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with background(every_request(cluster)):
        await server.until_asked(50)
        assert logged(caplog) == [LOST]
        assert SERVER in {record.__dict__.get("server") for record in caplog.records}
    server.respond(200)
    for _ in range(2):
        await cluster.node_uid("n1")
    assert logged(caplog) == [LOST, BACK]


async def test_pauses_grow_until_an_error_that_the_caller_handles() -> None:
    attempts: list[float] = []

    async def once() -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise Unavailable("watching", "pods", "lost") if len(attempts) < 12 else Gone("watching", "pods", "old", 410)

    with pytest.raises(Gone):
        await until_done(once, but=Gone)
    assert attempts[1] - attempts[0] <= 1
    assert LONGEST_PAUSE_SECONDS / 2 <= attempts[-1] - attempts[-2] <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("answer", [403, 500, Late(10)], ids=["forbidden", "broken", "slow"])
async def test_other_failures_are_logged_by_each_retry_loop(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture, answer: Broken | int
) -> None:
    """Also when there was no connection before."""
    asking = asyncio.create_task(until_done(lambda: cluster.node_uid("n1")))
    await server.until_asked(3)
    server.respond(answer)
    await server.until_asked(3)
    asking.cancel()
    found = logged(caplog)
    assert found.count(LOST) == 1
    assert found.count(("WARNING", "API request failed; retrying")) == 1


@pytest.mark.parametrize("answer", [200, 403, 404])
async def test_any_answer_is_a_connection(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture, answer: int
) -> None:
    caplog.set_level(logging.INFO)
    for response in (REFUSED, answer, Broken("cut"), answer):
        server.respond(response)
        with suppress(ApiError):
            await cluster.node_uid("n1")
    assert logged(caplog) == [LOST, BACK, LOST, BACK]


async def test_a_list_without_resource_version_is_used_not_watched(cluster: KubeClient, server: Server) -> None:
    server.version = {}
    server.respond(200)
    assert await cluster.list(PodObject, {}) == ([], "")
    with pytest.raises(InvalidResponse, match="the list has no resource version"):
        await WatchLoop(Watches(cluster), PodObject, {}, RecordedEvents()).list_and_watch()
    assert server.asked == 2


ANY: Final[dict[str, Callable[[KubeClient], Awaitable[object]]]] = {
    "get": lambda cluster: cluster.node_uid("n1"),
    "list": lambda cluster: cluster.list(PodObject, {"spec.nodeName": "n1"}),
    "watch": watched,
    "write": lambda cluster: cluster.apply_status("n1-x", {}),
}


@pytest.mark.parametrize("request_", ANY.values(), ids=ANY.keys())
async def test_rejected_credentials_are_said_once_with_the_remedy_whatever_was_asked(
    cluster: KubeClient,
    server: Server,
    request_: Callable[[KubeClient], Awaitable[object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server.respond(401)
    for ask in (request_, ANY["get"], ANY["write"]):
        with pytest.raises(Unauthorized) as error:
            await ask(cluster)
        # what retries it adds no line
        retries.log_failure("API request failed; retrying", error.value)
    assert cluster.is_rejected
    assert logged(caplog) == [("ERROR", unauthorized.EVENT)]
    server.respond(200)
    await cluster.node_uid("n1")
    assert not cluster.is_rejected
    assert logged(caplog)[1:] == [("INFO", unauthorized.OVER)]
