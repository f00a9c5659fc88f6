"""kopf against an API server in this process: what its handlers do, what they write, and what happens when it ends."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.names import ConfigReason
from nodedevice_common.tasks import problems
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.configs.kopf_run import KopfRun
from nodedevice_operator.informers.store import Store
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

from tests.fakes.background import background
from tests.fakes.log_lines import log_lines
from tests.fakes.played_api.kinds import CONFIGS, EVENTS
from tests.fakes.played_api.messages import Answer, Request, status
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving
from tests.fakes.polling import until


class Api(ConfigsApi):
    """Each probe is refused with the next of these, and granted after the last."""

    def __init__(self, *refusals: ApiError | None) -> None:
        self.refusals = list(refusals)

    async def probe(self) -> None:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal


class Seen(ConfigController):
    """Keeps the generations that kopf's handlers pass."""

    def __init__(self, fence: WriteFence) -> None:
        super().__init__(Api(), fence, Store())
        self.generations: dict[str, int] = {}

    def seen(self, name: str, uid: str, generation: int, status: dict[str, Any]) -> None:
        self.generations[name] = generation

    def gone(self, name: str, uid: str) -> None:
        if uid == f"uid of {name}":
            del self.generations[name]

    def all_gone(self) -> None:
        self.generations.clear()


class Bench:
    """An operator's part about configurations, which does not lead at first, and the API server.

    refused: the next watches are refused with these statuses. opened: how many watches were opened.
    """

    def __init__(
        self, server: PlayedApi, folder: Path, *refusals: ApiError | None, fence: WriteFence | None = None
    ) -> None:
        self.server, self.fence, self.refused, self.opened = server, fence or WriteFence(), list[int](), 0
        server.fault = self._refuse
        self.controller = Seen(self.fence)
        login = credentials.load(str(kubeconfig(folder, server.address, token="any")))
        health = ApiHealth(server.address)
        pauses = {"again_seconds": 0.05, "relist_seconds": 0.05}
        self.run = KopfRun(Api(*refusals), self.controller, login, health, self.fence, **pauses)

    def _refuse(self, request: Request) -> Answer | None:
        if "watch" not in request.query:
            return None
        if self.refused:
            return status(self.refused.pop(0))
        self.opened += 1
        return None

    @property
    def writes(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.server.requests if each.method != "GET"]

    def put(self, name: str, generation: int = 1, reason: str = "") -> None:
        """Write a configuration as others would. reason: of its condition Accepted."""
        body: dict[str, Any] = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE_CONFIG,
            "metadata": {"name": name, "uid": f"uid of {name}", "generation": generation},
            "spec": {"priority": generation},
        }
        if reason:
            condition = {"type": "Accepted", "status": "True", "reason": reason, "message": f"it is {reason}"}
            body["status"] = {"observedGeneration": generation, "conditions": [condition]}
        self.server.put(CONFIGS, body)

    async def until_seen(self, **generations: int) -> None:
        await until(lambda: self.controller.generations == generations)

    def events(self) -> list[tuple[str, str, str]]:
        found = self.server.objects[EVENTS]
        return [(each["type"], each["reason"], each["involvedObject"]["name"]) for each in found]

    async def until_watched(self, times: int = 1) -> None:
        """times: so many watches were opened."""
        await until(lambda: self.opened == times)


@pytest.fixture
def server() -> Iterator[PlayedApi]:
    with serving(PlayedApi()) as made:
        yield made


@pytest.fixture
def bench(server: PlayedApi, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the lines about an end of kopf."""
    return [each[2] for each in log_lines(caplog.records) if each[1] == "watch of NodeDeviceConfigs failed; relisting"]


@asynccontextmanager
async def beside() -> AsyncIterator[None]:
    """A task that begins later than kopf, as those of the operator may, and is untouched when kopf ends."""
    task = asyncio.create_task(asyncio.Event().wait())
    yield
    assert not task.done()
    task.cancel()


async def test_the_controller_gets_each_change_and_nothing_is_written(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
        await bench.until_watched()
        bench.put("a", 2)
        bench.put("b")
        await bench.until_seen(a=2, b=1)
        bench.server.send(CONFIGS, b'{"type":"DELETED","object":{"metadata":{"name":"a","uid":"an earlier one"}}}\n')
        bench.server.remove(CONFIGS, "a")
        await bench.until_seen(b=1)
    assert bench.writes == []


async def test_an_object_that_no_api_server_sends_is_left_out(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        for metadata in (b'{"name":"x","uid":"1"}', b'{"name":"x","uid":"1","generation":"one"}'):
            bench.server.send(CONFIGS, b'{"type":"ADDED","object":{"metadata":%b}}\n' % metadata)
        bench.put("b")
        await bench.until_seen(a=1, b=1)
    assert problems() == ()


async def test_a_result_is_one_event_of_the_leader_and_a_standby_writes_nothing(bench: Bench) -> None:
    bench.put("a", reason=ConfigReason.TAKEN)
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
        await bench.until_watched()
        bench.put("a", 2, reason=ConfigReason.REFUSED)
        await bench.until_seen(a=2)
        # its other handler has run by then
        bench.put("b")
        await bench.until_seen(a=2, b=1)
        assert bench.writes == []
        bench.fence.open_for_good()
        for generation, reason in ((3, ConfigReason.TAKEN), (4, ConfigReason.TAKEN), (5, ConfigReason.PENDING)):
            bench.put("a", generation, reason=reason)
            await bench.until_seen(a=generation, b=1)
        bench.put("a", 6, reason=ConfigReason.REFUSED)
        await until(lambda: len(bench.events()) == 2)
    assert bench.events() == [("Normal", ConfigReason.TAKEN, "a"), ("Warning", ConfigReason.REFUSED, "a")]
    assert set(bench.writes) == {"POST /api/v1/namespaces/default/events"}


class LostBetween(WriteFence):
    """The lead is lost between the handler and the request."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.checked = [True], list[str]()

    @property
    def is_open(self) -> bool:
        return bool(self.answers and self.answers.pop())

    def check(self, verb: str, what: str) -> None:
        self.checked.append(verb)
        super().check(verb, what)


async def test_an_event_passes_the_fence_at_the_moment_at_which_it_is_sent(server: PlayedApi, tmp_path: Path) -> None:
    fence = LostBetween()
    bench = Bench(server, tmp_path, fence=fence)
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        bench.put("a", 2, reason=ConfigReason.REFUSED)
        await until(lambda: fence.checked == ["POST"])
        # kopf goes on
        bench.put("b")
        await bench.until_seen(a=2, b=1)
    assert fence.checked == ["POST"]
    assert bench.writes == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}\n', id="ERROR"),
        pytest.param(b"<html>\n", id="no JSON"),
    ],
)
async def test_kopf_is_started_again_and_ends_no_other_task(
    bench: Bench, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("a")
    bench.fence.open_for_good()
    async with background(bench.run.work()):
        await bench.until_watched()
        async with beside():
            for times in (2, 3):
                bench.server.send(CONFIGS, line)
                await bench.until_watched(times)
                bench.put("a", times)
                await bench.until_seen(a=times)
            assert bench.fence.is_open
    [failed] = failures(caplog)
    assert "\n" not in failed["error"]


async def test_a_kind_that_goes_and_comes_is_served_again(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        bench.run.api = Api(*[_refusal(NotFound)] * 3)
        bench.refused = [404]
        bench.server.send(CONFIGS, b"<html>\n")
        await bench.until_seen()
        await bench.until_seen(a=1)


async def test_it_ends_with_the_program_and_leaves_no_thread(bench: Bench) -> None:
    def are_running() -> bool:
        return "kopf" in {thread.name for thread in threading.enumerate()}

    async with background(bench.run.work()):
        await bench.until_watched()
        assert are_running()
    await until(lambda: not are_running())


async def test_why_configurations_are_not_served_is_logged_when_it_changes(
    server: PlayedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # one that is away is not asked about its kinds
    kinds = (NotFound, NotFound, Unreachable, Unauthorized, NotFound, Forbidden)
    bench = Bench(server, tmp_path, *map(_refusal, kinds))
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
    without = "NodeDeviceConfigs cannot be read; retrying"
    missing = (
        "CRD NodeDeviceConfig is not installed. "
        "Run: helm upgrade, or as an administrator nodedevice-operator crds apply"
    )
    assert [line for line in log_lines(caplog.records) if "NodeDeviceConfigs" in line[1]] == [
        ("WARNING", without, {"error": missing}),
        ("WARNING", without, {"error": "the roles of this release are missing. Run: helm upgrade"}),
        ("INFO", "NodeDeviceConfigs can be read", {}),
    ]


def _refusal(kind: type[ApiError]) -> ApiError:
    return kind("GET", "nodedeviceconfigs", "no")
