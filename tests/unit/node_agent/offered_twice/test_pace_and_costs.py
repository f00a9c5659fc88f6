"""How soon and how often sources are compared, what is read again then, and what is logged of it."""

import asyncio
from collections.abc import Collection
from types import ModuleType
from typing import Any

import pytest
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.offered_twice import compare, watch
from nodedevice_agent.offered_twice.files import Host
from nodedevice_agent.offered_twice.host import HostReader

from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, SICK, WELL, pod
from tests.unit.node_agent.offered_twice.compared_node import OTHER, OURS, POOL, UUID, Node


class Disk(HostReader):
    """Takes so many seconds of the loop for each read. read_at: when they began. hangs: whether the last has not ended."""

    def __init__(self, seconds: float = 0.0, *, hangs: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.hangs = hangs
        self.read_at: list[float] = []

    @property
    def is_reading(self) -> bool:
        return self.hangs

    async def read(self, paths: Collection[str], cdi: Collection[str]) -> Host:
        self.read_at.append(asyncio.get_running_loop().time())
        await later(self.seconds)
        return Host()


def with_two_sources(disk: Disk) -> Node:
    node = Node(disk)
    node.kubelets(UUID)
    node.drivers({"gpu-0": {"uuid": OTHER}})
    return node


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.0), (0.05, 0.2), (10.0, 0.8)])
@virtual_time
async def test_a_comparison_is_followed_by_a_pause_of_four_times_as_long_up_to_a_bound(
    seconds: float, pause: float
) -> None:
    disk = Disk(seconds)
    node = with_two_sources(disk)

    async def changing() -> None:
        while True:
            node.twice.is_changed.set()
            await asyncio.sleep(0.001)

    async with background(node.twice.run()), background(changing()):
        await asyncio.sleep(30.0)
    first, second = disk.read_at[:2]
    assert second - first == pytest.approx(0.2 + seconds + pause, abs=0.01)


@virtual_time
async def test_a_disk_that_hangs_is_asked_again_half_a_minute_later() -> None:
    disk = Disk(hangs=True)
    node = with_two_sources(disk)
    async with background(node.twice.run()):
        await asyncio.sleep(30.0)
        assert len(disk.read_at) == 1
        await asyncio.sleep(1.0)
        assert len(disk.read_at) == 2
        disk.hangs = False
        await asyncio.sleep(1000.0)
        assert len(disk.read_at) == 3, "it was due when the disk answered again"


@virtual_time
async def test_once_all_is_known_everything_is_published(node: Node) -> None:
    async with background(node.twice.run()):
        node.kubelets(UUID)
        node.drivers({"gpu-0": {"uuid": OTHER}})
        await asyncio.sleep(1.0)
        assert sorted(node.changed) == sorted([GPU, POOL])
        node.twice.is_changed.set()
        await asyncio.sleep(1.0)
        assert len(node.changed) == 2


@pytest.mark.parametrize(
    ("module", "reading", "count"),
    [
        (watch, "paths_of", 3),
        (watch, "known_of", 3),
        (watch, "with_edits_of", 1),
        (compare, "_of_several", 1),
    ],
)
async def test_what_has_not_changed_is_read_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, module: ModuleType, reading: str, count: int
) -> None:
    """Two lists, one pool, and the response that only the kubelet's checkpoint has: ours is decoded already."""
    reads, read = list[object](), getattr(module, reading)

    def counted(*args: Any) -> Any:
        reads.append(args)
        return read(*args)

    monkeypatch.setattr(module, reading, counted)
    node.ours.plugin(["n"], NIC)
    node.ours.run(pod("p", nic=1))
    node.kubelets(UUID, held={UUID: "one"})
    node.drivers({"gpu-0": {"uuid": OTHER}})
    for health in (WELL, SICK, WELL):
        node.ours.lists([Device("n", health)], NIC)
        await node.twice._compared()
    assert len(reads) == count
    node.ours.lists(["n", "another"], NIC)
    node.drivers({"gpu-0": {"uuid": UUID}})
    assert [finding.other.resource_name for finding in (await node.twice._compared())[GPU]] == [POOL]


async def test_of_a_container_the_last_response_counts(node: Node) -> None:
    node.ours.plugin(["/dev/gone7"], OURS)
    for device_id, path, is_twice in (("a", "/dev/gone7", True), ("b", "/dev/gone8", False), ("a", "/dev/gone7", True)):
        node.kubelets("a", "b", held={device_id: "one"}, files=(path,))
        assert bool(await node.twice._compared()) is is_twice


@virtual_time
async def test_the_beginning_and_the_end_are_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with background(node.twice.run()):
        node.kubelets(UUID)
        for uuid in (UUID, UUID, UUID, OTHER, OTHER):
            node.drivers({"gpu-0": {"uuid": uuid}})
            await asyncio.sleep(2.0)
    logged = [(each.levelname, each.message, vars(each)["resource_name"]) for each in caplog.records]
    begun, ended = "devices are offered twice", "devices are no longer offered twice"
    assert sorted(logged) == sorted(
        (level, message, name) for level, message in (("WARNING", begun), ("INFO", ended)) for name in (GPU, POOL)
    )
    assert all(UUID in vars(each)["error"] for each in caplog.records if each.message == begun)
