"""Our own watch against a server that says what it is told to: what it takes in, where it goes on, when it lists anew."""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from nodedevice_api import names
from nodedevice_operator.errors import CredentialsError
from nodedevice_operator.informers.informer import RecordWatch
from nodedevice_operator.informers.intake import Intake
from nodedevice_operator.informers.pauses import Pauses
from nodedevice_operator.informers.relist import Sync
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.cluster_model import ClusterModel

KIND = names.NODE_DEVICES


class _Credentials(Credentials):
    server = ""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.refusals = 0

    def authorization(self) -> str:
        if self.problems:
            raise CredentialsError(self.problems.pop())
        return "Bearer fresh"

    def refused(self) -> None:
        self.refusals += 1

    def transport_options(self) -> dict[str, Any]:
        return {}

    def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context()


class Server:
    """Answers each watch with the next of `answers`: an HTTP status, or pieces of the stream; then it holds the connection.

    An empty piece cuts the connection.
    """

    def __init__(self) -> None:
        self.answers: list[int | list[bytes]] = []
        self.asked: list[dict[str, str]] = []
        self.tokens: set[str | None] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.tokens.add(request.headers.get("Authorization"))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, int):
            return web.Response(status=answer, headers={"Retry-After": "5"})
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in answer or ():
            if not piece:
                assert request.transport is not None
                request.transport.close()
            await response.write(piece)
            await asyncio.sleep(0)
        if answer is None:
            await asyncio.Event().wait()
        return response


class Watched:
    """A watch of NodeDevices, and what became of what it was told."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cache = Cache()
        self.cluster = ClusterModel()
        self.health = ApiHealth("api")
        self.credentials = _Credentials()
        self.news: list[tuple[str, int | None, int]] = []
        self.touched: list[str] = []
        self.changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.client = Client(self.credentials, self.health, Metrics().writes)
        self.cache.node_devices.on_update(self._hear)
        self.cache.pod_devices.on_update(lambda node, _, __: self.touched.append(node))
        intake = Intake(self.cache)
        self.watch = RecordWatch(Sync(self.cache, self.cluster, lambda _: None), intake, self.client)

    def _hear(self, node: str, before: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        if now is None:
            self.touched.append(node)
            return
        self.news.append((now.node, before.available if before else None, now.available))
        self.changed.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self.watch.work(KIND))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

    async def until(self, count: int) -> None:
        """Wait until so many changes were heard."""
        async with asyncio.timeout(10):
            while len(self.news) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    server = Server()
    app = web.Application()
    app.router.add_get(f"/apis/{names.API_VERSION}/{KIND}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Watched(server)
    made.credentials.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await made.close()
    await runner.cleanup()


def event(version: int, available: int, kind: str = "MODIFIED", node: str = "node-a") -> bytes:
    body: dict[str, Any] = {
        "metadata": {"name": f"{node}.example.com.gpu", "uid": f"nd-{node}", "resourceVersion": str(version)},
        "spec": {"nodeName": node, "resourceName": "example.com/gpu"},
        "status": {"total": available, "healthy": available, "available": available},
    }
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    body = {"kind": "NodeDevice", "metadata": {"resourceVersion": str(version)}, "spec": {"nodeName": "", "x": 1}}
    return json.dumps({"type": "BOOKMARK", "object": body}).encode() + b"\n"


ERROR = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode() + b"\n"
LAST = event(999, 9, node="node-z")


async def test_it_goes_on_where_it_was_cut_also_after_bookmarks(watched: Watched) -> None:
    lines = event(201, 1) + event(202, 2)
    pieces = [lines[:10], lines[10:400], lines[400:]]
    watched.server.answers = [pieces, [event(203, 3), bookmark(230)], [LAST]]
    watched.start()
    await watched.until(4)
    assert watched.news == [("node-a", None, 1), ("node-a", 1, 2), ("node-a", 2, 3), ("node-z", None, 9)]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:3]] == ["101", "202", "230"]
    assert watched.server.tokens == {"Bearer fresh"}
    assert watched.cluster.version == 101, "listed once"


@pytest.mark.parametrize("too_old", [410, 404, [ERROR], [event(205, 1), ERROR]])
async def test_it_lists_anew_when_it_cannot_go_on(watched: Watched, too_old: int | list[bytes]) -> None:
    watched.server.answers = [too_old, [LAST]]
    watched.start()
    await watched.until(1 if isinstance(too_old, int) or too_old == [ERROR] else 2)
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "102"]
    assert watched.cache.node_devices.is_complete


async def test_what_is_gone_meanwhile_is_found_by_the_list(watched: Watched) -> None:
    watched.server.answers = [[event(50, 1), event(60, 1, node="node-b"), ERROR], [LAST]]
    watched.start()
    await watched.until(3)
    assert watched.cache.node_devices.nodes() == {"node-z"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (403, "API server forbids it; grant what the chart's role nodedevice-operator has"),
        (401, "API server does not accept the credentials; renew the token or the client certificate"),
        (503, "API server does not answer; trying again until it does"),
    ],
)
async def test_a_refusal_is_told_and_tried_again_from_the_same_place(
    watched: Watched, status: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched.server.answers = [status, [LAST]]
    watched.start()
    await watched.until(1)
    assert told in [record.message for record in caplog.records]
    assert watched.health.problems() == ()
    assert watched.credentials.refusals == (status == 401)
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "101"]


async def test_the_more_watches_brought_nothing_the_longer_the_pause_and_never_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(self: Pauses, at_least_seconds: float = 0.0) -> None:
        pauses.append(max(self.next_seconds(), at_least_seconds))

    monkeypatch.setattr(Pauses, "pause", pause)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    # one that ends in order, with nothing in it, is no better than one that is refused; one that is busy is waited for as it asks
    watched.server.answers = [503, 410, [ERROR], [], 503, 429, [event(205, 1)], 503, [LAST]]
    watched.start()
    await watched.until(2)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 5.0, 0.1]


@pytest.mark.parametrize(
    "before", [b"", event(201, 1), event(201, 1) + event(202, 2)[:40]], ids=["soon", "", "in a line"]
)
async def test_one_that_is_cut_goes_on_and_is_no_outage(
    watched: Watched, before: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    watched.server.answers = [[before, b""] if before else [b""], [event(203, 3)], [LAST]]
    watched.start()
    await watched.until(3 if before else 2)
    assert watched.server.asked[1]["resourceVersion"] == ("201" if before else "101")
    assert watched.cluster.version == 101, "listed once"
    assert watched.health.seconds_since_outage() == math.inf
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


async def test_an_api_server_that_is_gone_after_a_cut_is_an_outage(watched: Watched) -> None:
    watched.server.answers = [[event(201, 1), b""], 503, 503, [LAST]]
    watched.start()
    await watched.until(2)
    assert watched.health.seconds_since_outage() < math.inf


async def test_a_token_that_cannot_be_read_is_an_outage(watched: Watched) -> None:
    watched.credentials.problems = ["no token"]
    watched.server.answers = [[LAST]]
    watched.start()
    await watched.until(1)
    assert watched.server.tokens == {"Bearer fresh"}


async def test_an_object_that_is_not_understood_holds_up_nobody(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"metadata": {"name": "odd", "resourceVersion": "300"}, "spec": []}
    odd = json.dumps({"type": "ADDED", "object": body}).encode() + b"\n"
    watched.server.answers = [[odd, event(301, 1)], [LAST]]
    watched.start()
    await watched.until(2)
    assert "cannot decode object; skipping it" in [record.message for record in caplog.records]
    assert watched.server.asked[1]["resourceVersion"] == "301"


async def test_an_end_is_heard_once(watched: Watched) -> None:
    watched.server.answers = [[event(201, 1), event(202, 1, "DELETED"), event(203, 1, "DELETED"), LAST]]
    watched.start()
    await watched.until(2)
    assert watched.touched == ["node-a"]
    assert watched.cache.node_devices.nodes() == {"node-z"}


async def test_poddevices_touch_the_node_they_are_on_and_were_on(watched: Watched) -> None:
    for node, uid, version in (("node-a", "p1", "1"), ("node-b", "p2", "2")):
        body = {
            "metadata": {"name": "pod-a", "namespace": "default", "uid": uid, "resourceVersion": version},
            "spec": {"nodeName": node, "podUID": uid},
        }
        watched.watch._take_pod_device(json.dumps(body).encode(), is_end=False)  # type: ignore[arg-type]
    assert watched.touched == ["node-a", "node-b", "node-a"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(event(205, 1)[:40], id="half of a line"),
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":7}}', id="no object"),
        pytest.param(bookmark(1).replace(b'"1"', b'"one"').strip(), id="no version"),
    ],
)
async def test_a_line_that_no_api_server_writes_is_told_and_a_list_made(
    watched: Watched, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    watched.server.answers = [[event(201, 1), line + b"\n", event(202, 2)], [LAST]]
    watched.start()
    await watched.until(2)
    assert [node for node, *_ in watched.news] == ["node-a", "node-z"]
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["watch brings what is not understood"]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "102"]
