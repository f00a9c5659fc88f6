"""Slices that are not of one node: counted by driver while this operator leads, and nothing at all where there is no such kind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web
from nodedevice_api import names
from nodedevice_operator import shared_slices
from nodedevice_operator.kube.health import ApiHealth
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
from nodedevice_operator.shared_slices import MOST_SLICES, SharedSlices, SliceStore

from tests.fakes.operator.collaborators import running
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

    async def discovery(self, request: web.Request) -> web.Response:
        self.asked.append("discovery")
        if self.kinds is None or "discovery" in self.statuses:
            return web.Response(status=self.statuses.get("discovery", 404))
        return web.json_response({"resources": [{"name": kind} for kind in self.kinds]})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        verb = "watch" if "watch" in request.query else "list"
        self.asked.append(verb)
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


class Bench:
    def __init__(self, server: Server, fence: WriteFence, health: ApiHealth, work: SharedSlices) -> None:
        self.server, self.fence, self.health, self.work = server, fence, health, work

    def counted(self) -> dict[str, tuple[float, float]]:
        """Slices and devices by driver, as scraped."""
        slices, devices = self.work.collect()
        assert (slices.name, devices.name) == (
            "nodedevice_operator_shared_slices",
            "nodedevice_operator_shared_slice_devices",
        )
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


@pytest.mark.parametrize(
    ("kinds", "statuses", "asked", "problems"),
    [
        pytest.param(None, {}, ["discovery"], (), id="no such group"),
        pytest.param(["deviceclasses", "resourceclaims"], {}, ["discovery"], (), id="no such kind"),
        pytest.param(
            ["resourceslices"],
            {"list": 403},
            ["discovery", "list"],
            ("API server forbids GET resourceslices",),
            id="no right to it",
        ),
        pytest.param(["resourceslices"], {"list": 404}, ["discovery", "list"], (), id="gone by now"),
    ],
)
async def test_nothing_is_watched_without_the_kind_or_the_right(
    tmp_path: Path, kinds: list[str] | None, statuses: dict[str, int], asked: list[str], problems: tuple[str, ...]
) -> None:
    server = Server(body("a"))
    server.kinds, server.statuses = kinds, statuses
    async with bench(tmp_path, server) as at:
        await at.asked(asked[-1])
        await at.until(lambda: at.health.problems() == problems)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert at.counted() == {}
    # five minutes have not passed
    assert server.asked == asked


@pytest.mark.parametrize(
    ("verb", "status"), [("discovery", 500), ("discovery", 401), ("discovery", 403), ("list", 429), ("list", 401)]
)
async def test_a_response_that_may_change_soon_is_asked_for_again(tmp_path: Path, verb: str, status: int) -> None:
    server = Server(body("a"))
    server.statuses[verb] = status
    async with bench(tmp_path, server) as at:
        await at.asked(verb, 3)
        del server.statuses[verb]
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


def slice_of(number: int, driver: str = "net.example.com") -> SharedSlice:
    return SharedSlice(f"slice-{number}", f"uid-{number}", 1, driver, 1)


def test_no_more_are_kept_than_are_of_use() -> None:
    store = SliceStore()
    stored = [store.put(slice_of(number)) for number in range(MOST_SLICES + 2)]
    assert stored == [True] * MOST_SLICES + [False] * 2
    assert store.put(SharedSlice("slice-3", "uid-3", 2, "net.example.com", 7))
    store.remove("slice-0", "uid-0")
    assert store.put(slice_of(MOST_SLICES))
    assert isinstance(store.empty(), SliceStore)


def test_drivers_without_number_are_counted_together() -> None:
    names_of_drivers = [f"driver-{number:03}.example.com" for number in range(MOST_DRIVERS + 7)]
    slices = [SharedSlice(f"{name}-{n}", "uid", 1, name, 3) for name in reversed(names_of_drivers) for n in range(2)]
    ours = SharedSlice("ours", "uid", 1, names.DRA_DRIVER, 3)
    counts = by_driver([*slices, ours])
    assert counts == {**dict.fromkeys(names_of_drivers[:MOST_DRIVERS], Count(2, 6)), OTHER: Count(14, 42)}


def test_of_a_slice_two_fields_are_kept() -> None:
    found = shared_slice(of_json(body("a", devices=128), SharedSliceSchema))
    assert found == SharedSlice("a", "uid-a", 5, "net.example.com", 128)
    bare = body("b")
    del bare["spec"]["devices"]
    assert shared_slice(of_json(bare, SharedSliceSchema)).devices == 0
