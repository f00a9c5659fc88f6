"""The informer against a server with canned responses: what it stores, where it resumes, when it lists again."""

import asyncio
import json
import math
import ssl
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from nodedevice_api import names
from nodedevice_operator.errors import CredentialsError, InvalidResponse, Unavailable
from nodedevice_operator.informers import informer as informer_module
from nodedevice_operator.informers.informer import Informer, _list_delay_seconds
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES, Kind, Listed
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.metrics import Metrics
from tenacity import AsyncRetrying, RetryCallState

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.operator_model import node_device


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
        self.is_over = asyncio.Event()

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
            await self.is_over.wait()
        return response


class Watched:
    """A watch of NodeDevices, and what became of its events."""

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
        self.cache.node_devices.on_update(self._on_event)
        self.cache.pod_devices.on_update(lambda node, _, __: self.touched.append(node))
        self.cache.nodes.on_update(lambda node, _, __: self.touched.append(node))
        self.informer = Informer(NODE_DEVICES, self.cache, self.cluster, self.client)

    def _on_event(self, node: str, before: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        if now is None:
            self.touched.append(node)
            return
        self.news.append((now.node, before.available if before else None, now.available))
        self.changed.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self.informer.work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

    async def until(self, count: int) -> None:
        """Wait until so many changes were heard."""
        async with asyncio.timeout(60):
            while len(self.news) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    server = Server()
    app = web.Application()
    app.router.add_get(f"/apis/{names.API_VERSION}/{names.NODE_DEVICES}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Watched(server)
    made.credentials.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await made.close()
    server.is_over.set()
    await runner.cleanup()


def event(version: int, available: int, kind: str = "MODIFIED", node: str = "node-a") -> bytes:
    body: dict[str, Any] = {
        "metadata": {"name": f"{node}.example.com.gpu", "uid": f"nd-{node}", "resourceVersion": str(version)},
        "spec": {"nodeName": node, "resourceName": "example.com/gpu"},
        "status": {"total": available, "healthy": available, "available": available},
    }
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def bookmark(version: int, node: str = "") -> bytes:
    """node: of what it has for an object; without one it is none."""
    spec = {"nodeName": node, "resourceName": "example.com/gpu"} if node else {"nodeName": "", "x": 1}
    body = {"kind": "NodeDevice", "metadata": {"resourceVersion": str(version)}, "spec": spec}
    return json.dumps({"type": "BOOKMARK", "object": body}).encode() + b"\n"


ERROR = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode() + b"\n"
LAST = event(999, 9, node="node-z")


async def test_it_goes_on_where_it_was_cut_also_after_bookmarks(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    lines = event(201, 1) + event(202, 2)
    pieces = [lines[:10], lines[10:400], lines[400:]]
    watched.server.answers = [pieces, [event(203, 3), bookmark(220, "node-b"), bookmark(230)], [LAST]]
    watched.start()
    await watched.until(4)
    assert watched.news == [("node-a", None, 1), ("node-a", 1, 2), ("node-a", 2, 3), ("node-z", None, 9)]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:3]] == ["101", "202", "230"]
    # whatever is in a bookmark beside its version is no object
    assert watched.cache.node_devices.nodes() == {"node-a", "node-z"}
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []
    assert watched.server.tokens == {"Bearer fresh"}
    assert watched.cluster.version == 101, "listed once"


@pytest.mark.parametrize("too_old", [410, 404, [ERROR], [event(205, 1), ERROR]])
async def test_it_lists_again_when_it_cannot_go_on(watched: Watched, too_old: int | list[bytes]) -> None:
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


@pytest.mark.parametrize("broken", [503, [event(500, 3, node="node-b"), b""]], ids=["an outage", "cut"])
async def test_what_a_restored_server_has_replaces_what_is_newer(
    watched: Watched, broken: int | list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Its versions begin again where the backup ended; from a version of the future it would send nothing."""
    watched.cluster.node_devices["n"] = node_device(available=7, resource_version=90)
    watched.cache.newest = 400
    watched.cluster.version = 400
    watched.server.answers = [broken, [LAST]]
    watched.cluster.restored_to = 102
    watched.start()
    async with asyncio.timeout(60):
        while not watched.server.asked:
            await asyncio.sleep(0)
    watched.cluster.version = 101
    await watched.until(2 if broken != 503 else 1)
    known = {record.node: record.available for record in watched.cache.node_devices.values()}
    assert known == {"node-a": 7, "node-z": 9}
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["401", "102"]
    restored = "API server was restored from a backup; replacing all that was known"
    assert [record.levelname for record in caplog.records if record.message == restored] == ["WARNING"]


@pytest.mark.parametrize(
    ("status", "logged"),
    [
        (403, "API server denies access; grant the rights of the chart's role"),
        (401, "API server rejects the credentials; renew the token or the client certificate"),
        (503, "API server is unreachable; retrying"),
    ],
)
async def test_a_refusal_is_logged_and_retried_from_the_same_place(
    watched: Watched, status: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched.server.answers = [status, [LAST]]
    watched.start()
    await watched.until(1)
    assert logged in [record.message for record in caplog.records]
    assert watched.health.problems() == ()
    assert watched.credentials.refusals == (status == 401)
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "101"]


async def test_the_pause_grows_with_watches_without_news(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    delay_seconds = Informer._delay_seconds

    def delay(self: Informer, at_least_seconds: float = 0.0) -> float:
        pauses.append(delay_seconds(self, at_least_seconds))
        return 0.0

    monkeypatch.setattr(Informer, "_delay_seconds", delay)
    monkeypatch.setattr("random.random", lambda: 0.5)
    # one that ends in order, with nothing in it, is no better than one that is refused; one that is busy is waited for as it asks
    watched.server.answers = [503, 410, [ERROR], [], 503, 429, [event(205, 1)], 503, [LAST]]
    watched.start()
    await watched.until(2)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 5.0, 0.1]


@pytest.mark.parametrize(
    "before", [b"", event(201, 1), event(201, 1) + event(202, 2)[:40]], ids=["soon", "", "in a line"]
)
async def test_one_that_is_cut_is_no_outage(watched: Watched, before: bytes, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_an_invalid_object_holds_up_nobody(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    body = {"metadata": {"name": "odd", "resourceVersion": "300"}, "spec": []}
    odd = json.dumps({"type": "ADDED", "object": body}).encode() + b"\n"
    watched.server.answers = [[odd, event(301, 1)], [LAST]]
    watched.start()
    await watched.until(2)
    assert "cannot decode object; skipping it" in [record.message for record in caplog.records]
    assert watched.server.asked[1]["resourceVersion"] == "301"


async def test_an_end_is_handled_once(watched: Watched) -> None:
    watched.server.answers = [[event(201, 1), event(202, 1, "DELETED"), event(203, 1, "DELETED"), LAST]]
    watched.start()
    await watched.until(2)
    assert watched.touched == ["node-a"]
    assert watched.cache.node_devices.nodes() == {"node-z"}


def informer_of(watched: Watched, kind: Kind[Any]) -> Informer:
    return Informer(kind, watched.cache, watched.cluster, watched.client)


def a_line(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode()


async def test_poddevices_notify_of_the_node_they_are_on_and_were_on(watched: Watched) -> None:
    informer = informer_of(watched, POD_DEVICES)
    for node, uid, version in (("node-a", "p1", "1"), ("node-b", "p2", "2")):
        body = {
            "metadata": {"name": "pod-a", "namespace": "default", "uid": uid, "resourceVersion": version},
            "spec": {"nodeName": node, "podUID": uid},
        }
        await informer._take(a_line("MODIFIED", body))
    assert watched.touched == ["node-a", "node-b", "node-a"]


async def test_a_node_is_notified_of_when_what_matters_of_it_changed(watched: Watched) -> None:
    informer = informer_of(watched, NODES)
    metadata = {"name": "node-a", "uid": "u", "resourceVersion": "1"}
    await informer._take(a_line("ADDED", {"metadata": metadata}))
    beat = {"metadata": {**metadata, "resourceVersion": "2"}, "status": {"capacity": {"cpu": "3"}}}
    assert await informer._take(a_line("MODIFIED", beat)) == 2
    assert watched.touched == ["node-a"]
    await informer._take(a_line("DELETED", beat))
    assert watched.touched == ["node-a", "node-a"]
    assert watched.cache.nodes.values() == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"}, "status": []}, id="no status"
        ),
        pytest.param(
            {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"}, "status": {"capacity": {"a.b/c": 1}}},
            id="a number",
        ),
        pytest.param(
            {
                "metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"},
                "status": {"capacity": {"a.b/c": "TEXT"}},
            },
            id="no UTF-8",
        ),
    ],
)
async def test_a_node_that_cannot_be_decoded_is_logged_once_until_it_can(
    watched: Watched, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    informer = informer_of(watched, NODES)
    await informer._take(a_line("ADDED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}}))
    for _ in range(3):
        await informer._take(a_line("MODIFIED", body).replace(b"TEXT", b"\xff"))
    assert watched.cache.nodes.get("node-a") is not None
    assert watched.cache.nodes.is_invalid("node-a")
    assert watched.touched == ["node-a"]
    assert [record.message for record in caplog.records] == ["cannot decode object; skipping it"]
    await informer._take(a_line("MODIFIED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "3"}}))
    assert not watched.cache.nodes.is_invalid("node-a")
    assert watched.touched == ["node-a", "node-a"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_node_that_is_deleted_needs_no_more_than_its_name(watched: Watched, is_known: bool) -> None:
    informer = informer_of(watched, NODES)
    body: dict[str, Any] = {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}}
    await informer._take(a_line("ADDED", body if is_known else {**body, "status": []}))
    watched.touched.clear()
    await informer._take(a_line("DELETED", {**body, "status": []}))
    assert watched.cache.nodes.values() == []
    assert watched.touched == ["node-a"]


@pytest.mark.parametrize("metadata", [{"name": 3}, []])
async def test_a_node_without_a_name_is_an_invalid_event(watched: Watched, metadata: Any) -> None:
    with pytest.raises(InvalidResponse):
        await informer_of(watched, NODES)._take(a_line("ADDED", {"metadata": metadata}))


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
async def test_a_nonsense_line_leads_to_a_list(watched: Watched, line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    watched.server.answers = [[event(102, 1), line + b"\n", event(202, 2)], [LAST]]
    watched.start()
    await watched.until(2)
    assert [node for node, *_ in watched.news] == ["node-a", "node-z"]
    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert logged == ["invalid watch event; relisting"]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "102"]


async def test_the_next_list_waits_for_as_long_as_the_api_server_asks() -> None:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.set_exception((Unavailable, Unavailable("GET", "nodes", "too busy", 429, 60.0), None))
    assert _list_delay_seconds(state) == 60.0


async def test_a_refresh_lists_beside_the_watch_which_goes_on(watched: Watched) -> None:
    watched.server.answers = [[event(150, 3)], [LAST]]
    watched.start()
    await watched.until(1)
    watched.cluster.node_devices["n"] = node_device(node="node-n", available=7, resource_version=160)
    watched.cluster.version = 170
    await watched.informer.refresh()
    assert "node-n" in watched.cache.node_devices.nodes()
    await watched.until(2)
    assert watched.server.asked[1]["resourceVersion"] == "150"


class _Pages(ClusterModel):
    """Serves these lists, page by page; None: the API server fails there."""

    def __init__(self, *lists: list[Listed[NodeDeviceRecord] | None]) -> None:
        super().__init__()
        self.lists = list(lists)

    async def pages(self, kind: Kind[Any]) -> AsyncIterator[Listed[Any]]:
        for page in self.lists.pop(0):
            if page is None:
                raise Unavailable("list", kind.name, "too busy", 429)
            yield page


def page(version: int, **available: int) -> Listed[NodeDeviceRecord]:
    """Of these nodes' objects, each written at the version of the list."""
    fields = ((f"node-{name}", number) for name, number in available.items())
    records = [node_device(node=node, uid=f"of-{node}", available=n, resource_version=version) for node, n in fields]
    return Listed(records, version)


def numbers(watched: Watched) -> dict[str, int]:
    return {held.node: held.available for held in watched.cache.node_devices.values()}


async def first_list(watched: Watched, *lists: list[Listed[NodeDeviceRecord] | None]) -> None:
    cluster = _Pages(*lists)
    # the other kinds are complete, so that only this list is missing
    watched.cache.nodes.replace([], 1)
    watched.cache.pod_devices.replace([], 1)
    informer = Informer(NODE_DEVICES, watched.cache, cluster, watched.client)
    for _ in lists[:-1]:
        with pytest.raises(Unavailable):
            await informer._list()
        assert not watched.cache.is_complete
    await informer._list()
    assert watched.cache.is_complete


async def test_a_first_list_that_ends_early_leaves_nothing_that_is_gone_at_the_next_attempt(watched: Watched) -> None:
    begun: list[Listed[NodeDeviceRecord] | None] = [page(100, a=1, b=2), None]
    await first_list(watched, begun, [page(110, a=1), page(110, c=3)])
    assert numbers(watched) == {"node-a": 1, "node-c": 3}


async def test_a_restored_server_replaces_what_a_first_list_that_ended_early_has_brought(watched: Watched) -> None:
    begun: list[Listed[NodeDeviceRecord] | None] = [page(100, a=1, b=2), None]
    await first_list(watched, begun, [page(50, a=7), page(50, c=3)])
    assert numbers(watched) == {"node-a": 7, "node-c": 3}
    assert watched.cache.restores == 1


async def test_the_first_list_tells_of_all_nodes_once_it_is_complete(watched: Watched) -> None:
    listed: list[tuple[bool, str]] = []
    watched.cache.on_list = lambda node: listed.append((watched.cache.is_complete, node))
    await first_list(watched, [page(100, a=1, b=2), page(100, c=3)])
    assert sorted(listed) == [(True, f"node-{name}") for name in "abc"]


async def test_a_long_object_is_decoded_in_a_thread(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader must renew its Lease meanwhile; and whatever comes after it in the watch waits for it."""
    threads: set[bool] = set()
    read = informer_module._read

    def noted(line: bytes, kind: Kind[Any]) -> tuple[Any, Any]:
        threads.add(threading.current_thread() is threading.main_thread())
        return read(line, kind)

    monkeypatch.setattr(informer_module, "_read", noted)
    informer, capacity = informer_of(watched, NODES), {f"example.com/r{number}": "1" for number in range(4000)}
    metadata = {"name": "node-a", "uid": "u", "resourceVersion": "1"}
    await informer._take(a_line("ADDED", {"metadata": metadata, "status": {"capacity": capacity}}))
    assert threads == {False}
    assert watched.cache.nodes.by_key["node-a"].resource_version == 1
    await informer._take(a_line("MODIFIED", {"metadata": {**metadata, "resourceVersion": "2"}, "status": {}}))
    assert threads == {False, True}, "a short one takes less than the start of a thread"
