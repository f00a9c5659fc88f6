"""Slices that are not of one node: counted by driver while this operator leads, and nothing at all where there is no such kind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_api import names
from nodedevice_operator import shared_slices
from nodedevice_operator.kube.client import Client
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
from tests.fakes.played_api.kinds import SLICES
from tests.fakes.played_api.messages import Answer, Request, status
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import serving
from tests.fakes.polling import until
from tests.unit.operator.kube.api_server import client_of
from tests.unit.operator.objects.bodies import of_json

CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"
LISTED: Final = ["discovery", "list"]


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


class Server(PlayedApi):
    """An API server with slices. statuses: instead of responses, by what is asked for."""

    def __init__(self, *slices: dict[str, Any]) -> None:
        super().__init__({CLASSES: [], SLICES: list(slices)}, fault=self._refuse)
        self.statuses: dict[str, int] = {}

    def _refuse(self, request: Request) -> Answer | None:
        code = self.statuses.get(_asked(request))
        return status(code) if code else None

    @property
    def asked(self) -> list[str]:
        return [_asked(each) for each in self.requests if each.path != "/version"]


def _asked(request: Request) -> str:
    return "watch" if "watch" in request.query else "list" if request.path == SLICES else "discovery"


@dataclass
class Bench:
    server: Server
    fence: WriteFence
    health: ApiHealth
    client: Client
    work: SharedSlices

    def counted(self) -> dict[str, tuple[float, float]]:
        """Slices and devices by driver, as scraped."""
        slices, devices = self.work.collect()
        assert [slices.name, devices.name] == [f"nodedevice_operator_shared_{of}" for of in ("slices", "slice_devices")]
        of = {each.labels["driver"]: each.value for each in devices.samples}
        return {each.labels["driver"]: (each.value, of[each.labels["driver"]]) for each in slices.samples}

    async def quiet(self) -> None:
        """Long enough for requests to be sent."""
        for _ in range(5):
            await self.client.request("GET", "version", "/version")

    async def asked(self, what: str, times: int = 1) -> None:
        await until(lambda: self.server.asked.count(what) >= times)


@asynccontextmanager
async def bench(folder: Path, server: Server, *, leads: bool = True) -> AsyncIterator[Bench]:
    fence, health = WriteFence(), ApiHealth("api")
    if leads:
        fence.open_for_good()
    with serving(server):
        async with client_of(folder, server.address, health=health) as client:
            work = SharedSlices(client, fence)
            async with running(work.work()):
                yield Bench(server, fence, health, client, work)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_slices, "_POLL_SECONDS", 0.0)


async def test_they_are_counted_by_driver_and_followed(tmp_path: Path) -> None:
    mine = body("ours", names.DRA_DRIVER, 8)
    server = Server(body("a"), body("b", devices=3), body("c", "gpu.example.com", 1), mine)
    async with bench(tmp_path, server) as at:
        await until(lambda: len(at.counted()) == 2)
        assert at.counted() == {"net.example.com": (2, 5), "gpu.example.com": (1, 1)}
        await at.asked("watch")
        assert "watch-shared-slices" in {task.get_name() for task in asyncio.all_tasks()}
        server.put(SLICES, body("d", "gpu.example.com", 4))
        await until(lambda: at.counted()["gpu.example.com"] == (2, 5))
        server.remove(SLICES, "a")
        server.remove(SLICES, "b")
        await until(lambda: at.counted() == {"gpu.example.com": (2, 5)})
    # never those of nodes
    assert {each.query["fieldSelector"] for each in server.requests if each.path == SLICES} == {"spec.nodeName="}
    assert "watch-shared-slices" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.parametrize(
    ("lacks", "statuses", "asked", "problems"),
    [
        pytest.param((SLICES, CLASSES), {}, ["discovery"], (), id="no such group"),
        pytest.param((SLICES,), {}, ["discovery"], (), id="no such kind"),
        pytest.param((), {"list": 403}, LISTED, ("API server forbids GET resourceslices",), id="no right to it"),
        pytest.param((), {"list": 404}, LISTED, (), id="gone by now"),
    ],
)
async def test_nothing_is_watched_without_the_kind_or_the_right(
    tmp_path: Path, lacks: tuple[str, ...], statuses: dict[str, int], asked: list[str], problems: tuple[str, ...]
) -> None:
    server = Server(body("a"))
    server.statuses = statuses
    for kind in lacks:
        del server.objects[kind]
    async with bench(tmp_path, server) as at:
        await at.asked(asked[-1])
        await until(lambda: at.health.problems() == problems)
        await at.quiet()
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
        await until(lambda: at.counted() == {"net.example.com": (1, 2)})


async def test_only_who_leads_has_them(tmp_path: Path) -> None:
    server = Server(body("a"))
    async with bench(tmp_path, server, leads=False) as at:
        await at.quiet()
        assert server.asked == []
        for times in (1, 2):
            at.fence.open_for_good()
            await until(lambda: at.counted() == {"net.example.com": (1, 2)})
            await at.asked("watch", times)
            at.fence.close()
            await until(lambda: at.counted() == {})


async def test_the_kind_may_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_slices, "_DISCOVERY_SECONDS", 0.0)
    server = Server()
    del server.objects[SLICES]
    async with bench(tmp_path, server) as at:
        await at.asked("discovery", 2)
        server.objects[SLICES] = [body("a")]
        await until(lambda: at.counted() == {"net.example.com": (1, 2)})
        await at.asked("watch")
        # which goes on while the API server is asked again
        await at.asked("discovery", server.asked.count("discovery") + 3)
        assert server.asked.count("watch") == 1
        del server.objects[SLICES]
        await until(lambda: at.counted() == {})


async def test_an_object_that_cannot_be_decoded_hides_no_other(tmp_path: Path) -> None:
    broken = {**body("broken"), "spec": {"driver": 7}}
    async with bench(tmp_path, Server(broken, body("a"))) as at:
        await until(lambda: at.counted() == {"net.example.com": (1, 2)})


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
