"""Slices that are not of one node: counted by driver while this operator leads, and nothing at all where there is no such kind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import msgspec
import pytest
from aiohttp import web
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from nodedevice_operator import shared_slices
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.shared_slice import (
    MOST_DRIVERS,
    OTHER,
    Count,
    SharedSlice,
    SharedSliceSchema,
    by_driver,
    shared_slice,
)
from nodedevice_operator.shared_slices import SharedSlices, SlicesApi, SliceStore

from tests.fakes.operator.collaborators import open_fence, running
from tests.unit.operator.kube.api_server import client_of
from tests.unit.operator.objects.bodies import of_json

ROOT: Final = "/apis/resource.k8s.io/v1"
_PATIENCE_SECONDS: Final = 60.0


def body(name: str, driver: str = "net.example.com", devices: int = 2, version: int = 5) -> dict[str, Any]:
    attributes = {f"attribute-{n}": {"string": "v" * 64} for n in range(32)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {
            "driver": driver,
            "pool": {"name": "rack-1", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": f"nic-{n}", "attributes": attributes} for n in range(devices)],
        },
    }


class Server:
    """An API server with slices; kinds: those that it serves of the group, None for no such group."""

    def __init__(self, *slices: dict[str, Any]) -> None:
        self.kinds: list[str] | None = ["deviceclasses", "resourceslices"]
        self.slices = list(slices)
        self.statuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.changed = asyncio.Event()

    async def discovery(self, request: web.Request) -> web.Response:
        self._note("discovery")
        if self.kinds is None or "discovery" in self.statuses:
            return web.Response(status=self.statuses.get("discovery", 404))
        return web.json_response({"resources": [{"name": kind} for kind in self.kinds]})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        verb = "watch" if "watch" in request.query else "list"
        self._note(verb)
        self.queries.append(dict(request.query))
        if verb in self.statuses:
            return web.Response(status=self.statuses[verb])
        if verb == "list":
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": self.slices})
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self.lines.get())

    def send(self, kind: str, obj: dict[str, Any]) -> None:
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")

    def _note(self, what: str) -> None:
        self.asked.append(what)
        self.changed.set()


class Bench:
    def __init__(self, server: Server, fence: WriteFence, health: ApiHealth, work: SharedSlices) -> None:
        self.server, self.fence, self.health, self.work = server, fence, health, work

    def counted(self) -> dict[str, tuple[float, float]]:
        """Slices and devices by driver, as scraped."""
        slices, devices = self.work.collect()
        of = {each.labels["driver"]: each.value for each in devices.samples}
        return {each.labels["driver"]: (each.value, of[each.labels["driver"]]) for each in slices.samples}

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not is_so():
                await asyncio.sleep(0)

    async def asked(self, what: str, times: int = 1) -> None:
        await self.until(lambda: self.server.asked.count(what) >= times)


@asynccontextmanager
async def bench(folder: Path, server: Server, *, leads: bool = True) -> AsyncIterator[Bench]:
    app = web.Application()
    app.router.add_get(ROOT, server.discovery)
    app.router.add_get(f"{ROOT}/resourceslices", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fence = WriteFence()
    if leads:
        fence.open_for_good()
    health = ApiHealth("api")
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with client_of(folder, url, health=health) as client:
        work = SharedSlices(client, fence)
        async with running(work.work()):
            yield Bench(server, fence, health, work)
    await runner.cleanup()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_slices, "_POLL_SECONDS", 0.0)


async def test_they_are_counted_by_driver_and_followed(tmp_path: Path) -> None:
    mine = body("ours", names.DRA_DRIVER, 8)
    server = Server(body("a"), body("b", devices=3), body("c", "gpu.example.com", 1), mine)
    async with bench(tmp_path, server) as at:
        await at.until(lambda: len(at.counted()) == 2)
        assert at.counted() == {"net.example.com": (2, 5), "gpu.example.com": (1, 1)}
        await at.asked("watch")
        assert "watch-shared-slices" in {task.get_name() for task in asyncio.all_tasks()}
        server.send("ADDED", body("d", "gpu.example.com", 4, version=10))
        await at.until(lambda: at.counted()["gpu.example.com"] == (2, 5))
        server.send("DELETED", body("a", version=11))
        server.send("DELETED", body("b", version=12))
        await at.until(lambda: at.counted() == {"gpu.example.com": (2, 5)})
    # never those of nodes
    assert {query["fieldSelector"] for query in server.queries} == {"spec.nodeName="}
    assert "watch-shared-slices" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.parametrize("kinds", [None, [], ["deviceclasses", "resourceclaims"]])
async def test_nothing_happens_on_a_cluster_without_the_kind(tmp_path: Path, kinds: list[str] | None) -> None:
    server = Server(body("a"))
    server.kinds = kinds
    async with bench(tmp_path, server) as at:
        await at.asked("discovery")
        for _ in range(1000):
            await asyncio.sleep(0)
        assert at.counted() == {}
        assert Health(at.health, lambda: ())._ready() == (True, "ok")
    # five minutes have not passed
    assert server.asked == ["discovery"]


async def test_without_the_right_nothing_is_counted_and_the_operator_is_ready(tmp_path: Path) -> None:
    server = Server(body("a"))
    server.statuses["list"] = 403
    async with bench(tmp_path, server) as at:
        await at.asked("list")
        await at.until(lambda: bool(at.health.problems()))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert at.counted() == {}
        ready, live = Health(at.health, lambda: ())._ready(), Health(at.health, lambda: ())._live()
        assert ready == (True, "ok")
        assert live == (True, "ok\nAPI server forbids GET resourceslices")
    assert server.asked == ["discovery", "list"]


async def test_a_server_that_fails_is_asked_again(tmp_path: Path) -> None:
    server = Server(body("a"))
    server.statuses["discovery"] = 500
    async with bench(tmp_path, server) as at:
        await at.asked("discovery", 3)
        del server.statuses["discovery"]
        await at.until(lambda: at.counted() == {"net.example.com": (1, 2)})


async def test_only_who_leads_has_them(tmp_path: Path) -> None:
    server = Server(body("a"))
    async with bench(tmp_path, server, leads=False) as at:
        for _ in range(1000):
            await asyncio.sleep(0)
        assert server.asked == []
        for times in (1, 2):
            at.fence.open_for_good()
            await at.until(lambda: at.counted() == {"net.example.com": (1, 2)})
            await at.asked("watch", times)
            at.fence.close()
            await at.until(lambda: at.counted() == {})


async def test_the_kind_may_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_slices, "_DISCOVERY_SECONDS", 0.0)
    server = Server(body("a"))
    server.kinds = None
    async with bench(tmp_path, server) as at:
        await at.asked("discovery", 2)
        server.kinds = ["resourceslices"]
        await at.until(lambda: at.counted() == {"net.example.com": (1, 2)})
        await at.asked("watch")
        # which goes on while the API server is asked again
        await at.asked("discovery", server.asked.count("discovery") + 3)
        assert server.asked.count("watch") == 1
        server.kinds = None
        await at.until(lambda: at.counted() == {})


async def test_an_object_that_cannot_be_decoded_hides_no_other(tmp_path: Path) -> None:
    broken = {**body("broken"), "spec": {"driver": 7}}
    async with bench(tmp_path, Server(broken, body("a"))) as at:
        await at.until(lambda: at.counted() == {"net.example.com": (1, 2)})


DISCOVERY: Final = ("GET", "apis", ROOT, None)
LIST: Final = ("GET", "resourceslices", f"{ROOT}/resourceslices", {"limit": 1, "fieldSelector": "spec.nodeName="})
SERVED: Final = b'{"resources": [{"name": "deviceclasses"}, {"name": "resourceslices"}]}'


class Answering:
    """A client that answers so, in turn; an error is raised."""

    def __init__(self, *answers: bytes | ApiError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, str, object]] = []

    async def request(self, verb: str, what: str, path: str, *, query: object = None) -> bytes:
        self.asked.append((verb, what, path, query))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "is_served"),
    [
        pytest.param([SERVED, b"{}"], True, id="served"),
        pytest.param([b'{"resources": [{"name": "deviceclasses"}]}'], False, id="no such kind"),
        pytest.param([NotFound("GET", "apis", "none", 404)], False, id="no such group"),
        pytest.param([SERVED, NotFound("GET", "resourceslices", "none", 404)], False, id="gone by now"),
        pytest.param([SERVED, Forbidden("GET", "resourceslices", "no role", 403)], False, id="no right to it"),
    ],
)
async def test_whether_there_is_anything_to_watch(answers: list[bytes | ApiError], is_served: bool) -> None:
    client = Answering(*answers)
    assert await SlicesApi(cast(Client, client)).is_served() is is_served
    assert client.asked == [DISCOVERY, LIST][: len(answers)]


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        pytest.param([Unauthorized("GET", "apis", "expired", 401)], "GET apis: expired", id="no credentials"),
        pytest.param([Forbidden("GET", "apis", "no roles", 403)], "GET apis: no roles", id="no roles read yet"),
        pytest.param(
            [SERVED, Unavailable("GET", "resourceslices", "busy", 429)], "GET resourceslices: busy", id="busy"
        ),
        pytest.param(
            [b"<html>"],
            "GET apis: the response is not what an API server sends (JSON is malformed: invalid character (byte 0))",
            id="a proxy",
        ),
    ],
)
async def test_what_may_be_another_answer_soon_is_an_error(answers: list[bytes | ApiError], error: str) -> None:
    with pytest.raises(ApiError) as raised:
        await SlicesApi(cast(Client, Answering(*answers))).is_served()
    assert str(raised.value) == error


async def test_a_watch_that_fails_is_the_failure_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: Informer) -> NoReturn:
        raise RuntimeError("broken")

    monkeypatch.setattr(Informer, "work", fails)
    work = SharedSlices(cast(Client, Answering(SERVED, b"{}")), open_fence())
    with pytest.raises(RuntimeError, match=r"^broken$"):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await work.work()


def slice_of(number: int, driver: str = "net.example.com") -> SharedSlice:
    return SharedSlice(f"slice-{number}", f"uid-{number}", 1, driver, 1)


def test_no_more_are_kept_than_are_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_slices, "MOST_SLICES", 10)
    store = SliceStore()
    stored = [store.put(slice_of(number)) for number in range(20)]
    assert stored == [True] * 10 + [False] * 10
    assert store.put(SharedSlice("slice-3", "uid-3", 2, "net.example.com", 7))
    store.remove("slice-0", "uid-0")
    assert store.put(slice_of(11))
    assert store.empty().replace([slice_of(number) for number in range(20)], 5) == {"net.example.com"}
    assert isinstance(store.empty(), SliceStore)


def test_drivers_without_number_are_counted_together() -> None:
    names_of_drivers = [f"driver-{number:03}.example.com" for number in range(MOST_DRIVERS + 7)]
    slices = [SharedSlice(f"{name}-{n}", "uid", 1, name, 3) for name in reversed(names_of_drivers) for n in range(2)]
    ours = SharedSlice("ours", "uid", 1, names.DRA_DRIVER, 3)
    counts = by_driver([*slices, ours])
    assert counts == {**dict.fromkeys(names_of_drivers[:MOST_DRIVERS], Count(2, 6)), OTHER: Count(14, 42)}
    assert [*counts] == [*names_of_drivers[:MOST_DRIVERS], OTHER]
    assert by_driver(slices[14:]) == dict.fromkeys(names_of_drivers[:MOST_DRIVERS], Count(2, 6))


def test_its_metrics_have_their_names() -> None:
    work = SharedSlices(client=None, fence=WriteFence())  # type: ignore[arg-type]  # asks for nothing here
    work.store.put(SharedSlice("a", "uid-a", 1, "net.example.com", 7))
    found = [
        (each.type, sample.name, sample.labels, sample.value) for each in work.collect() for sample in each.samples
    ]
    assert found == [
        ("gauge", "nodedevice_operator_shared_slices", {"driver": "net.example.com"}, 1),
        ("gauge", "nodedevice_operator_shared_slice_devices", {"driver": "net.example.com"}, 7),
    ]


def test_of_a_slice_two_fields_are_kept() -> None:
    found = shared_slice(of_json(body("a", devices=128), SharedSliceSchema))
    assert found == SharedSlice("a", "uid-a", 5, "net.example.com", 128)
    bare = body("b")
    del bare["spec"]["devices"]
    assert shared_slice(of_json(bare, SharedSliceSchema)).devices == 0
