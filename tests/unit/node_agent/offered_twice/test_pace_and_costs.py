"""How soon and how often sources are compared, what is read again then, and what is logged of it."""

import asyncio

import pytest

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU
from tests.unit.node_agent.offered_twice.compared_node import OTHER, POOL, UUID, Disk, Node

pytestmark = virtual_time


def with_two_sources(disk: Disk) -> Node:
    node = Node(disk)
    node.kubelets(UUID)
    node.drivers({"gpu-0": {"uuid": OTHER}})
    return node


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.0), (0.05, 0.2), (10.0, 0.8)])
async def test_after_a_comparison_is_a_pause_of_four_times_as_long_up_to_a_bound(seconds: float, pause: float) -> None:
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


async def test_a_disk_that_hangs_is_asked_again_half_a_minute_later() -> None:
    disk = Disk(hangs=True)
    async with background(with_two_sources(disk).twice.run()):
        await asyncio.sleep(30.0)
        assert len(disk.read_at) == 1
        await asyncio.sleep(1.0)
        assert len(disk.read_at) == 2
        disk.hangs = False
        await asyncio.sleep(1000.0)
        assert len(disk.read_at) == 3, "it was due when the disk answered again"


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
