"""When the one reader reads, and how often it calls the kubelet for all subscribers together."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from nodedevice_agent.checkpoint.long_files import KubeletFile
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.directory import read_file
from nodedevice_agent.kubelet.readings import Pace
from nodedevice_agent.runtime.kubelet_takeover import CHECK_SECONDS

from tests.fakes.background import background
from tests.fakes.kubelet_answers import read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Node, is_away

pytestmark = virtual_time
THIRD = Allocation("three", "c0", GPU, {-1: ("c",)}, b"")
# by who is there: of pod resources in ten minutes in which nothing happens
ALL: Final = ("connections", "List", "GetAllocatableResources")
IDLE: Final = {
    ("Observer",): dict.fromkeys(ALL, 20),
    ("Observer", "Holders"): dict.fromkeys(ALL, 20),
    ("Observer", "KubeletCheckpoint", "KubeletTakeover"): dict.fromkeys(ALL, 60),
    ("Observer", "AttributionFeed"): dict.fromkeys(ALL, 20),
    ("AttributionFeed",): {"connections": 1, "List": 1},
    ("KubeletCheckpoint",): {},
    (): {},
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)


def counts(node: Node) -> tuple[int, int]:
    """How many checkpoints and pod resources a subscriber got."""
    return len(node.recorded.checkpoints), len(node.recorded.pods)


async def test_a_write_is_given_at_once_and_pods_are_asked_for_a_moment_later(node: Node) -> None:
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        assert counts(node) == (1, 1)
        node.write(THIRD)
        await asyncio.sleep(0.05)
        assert counts(node) == (2, 1)
        await asyncio.sleep(0.1)
        assert counts(node) == (2, 2)


async def test_who_does_not_follow_the_file_gets_it_after_a_while(node: Node) -> None:
    node.recorded.pace = Pace(check_seconds=20.0)
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        node.write(THIRD)
        await asyncio.sleep(18.5)
        assert counts(node) == (1, 1)
        await asyncio.sleep(1.0)
        assert counts(node) == (2, 2)


async def test_who_is_outdated_and_wakes_the_reader_gets_pods_at_once(node: Node) -> None:
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        node.recorded.is_outdated = True
        node.reader.wake()
        await asyncio.sleep(0.2)
        assert counts(node) == (1, 2)
        await asyncio.sleep(20.0)
        assert counts(node) == (1, 2), "once"


async def test_a_file_that_could_not_be_read_is_tried_again_soon(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    is_broken = True

    def read(file: Path, before: object) -> KubeletFile:
        if is_broken:
            raise OSError(5, "Input/output error")
        return read_file(file)

    monkeypatch.setattr("nodedevice_agent.kubelet.reader.read_file", read)
    async with background(node.reader.run()):
        await asyncio.sleep(0.5)
        assert [each.problem for each in node.recorded.checkpoints] == ["cannot be read: Input/output error"]
        is_broken = False
        await asyncio.sleep(1.0)
        assert node.recorded.checkpoints[-1].problem == ""


async def test_a_list_that_is_due_is_made_when_it_is_due(node: Node) -> None:
    node.recorded.pace = Pace(list_seconds=30.0)
    times: list[float] = []
    node.kubelet.meanwhile = lambda: times.append(asyncio.get_running_loop().time())
    async with background(node.reader.run()):
        await asyncio.sleep(100.0)
    assert [round(each - times[0], 3) for each in times] == [0.0, 30.0, 60.0, 90.0]


@pytest.mark.parametrize("names", IDLE, ids=lambda names: "+".join(names) or "none")
async def test_an_idle_agent_asks_as_often_as_its_most_frequent_subscriber(names: tuple[str, ...], node: Node) -> None:
    node.begin_without_subscribers()
    for name in names:
        node.subscribe(name)
    async with background(node.reader.run()):
        await asyncio.sleep(600 - CHECK_SECONDS / 2)
    assert node.kubelet.calls == IDLE[names]


async def test_an_allocation_is_one_connection_with_two_calls_for_all(node: Node) -> None:
    for name in ("AttributionFeed", "Observer"):
        node.subscribe(name)
    async with background(node.reader.run()):
        await asyncio.sleep(1)
        node.kubelet.calls.clear()
        node.pods["three"] = pod("three", gpu=1)
        node.kubelet.rows += (PodResourcesRow("default", "three", "c0", GPU, ("c",)),)
        # several writes at once, as of a pod with several containers
        for ids in (("x",), ("c",)):
            node.write(Allocation("three", "c0", GPU, {-1: ids}, b""))
        await asyncio.sleep(1)
    assert node.kubelet.calls == {"connections": 1, "Get": 1, "GetAllocatableResources": 1}
    assert node.kubelet.asked == ["three"]


async def test_a_kubelet_that_is_away_is_asked_ever_later(node: Node) -> None:
    node.subscribe("Observer")
    times: list[float] = []
    node.kubelet.meanwhile = lambda: times.append(asyncio.get_running_loop().time())
    is_away(node)
    async with background(node.reader.run()):
        for _ in range(2):
            times.clear()
            node.kubelet.calls.clear()
            await asyncio.sleep(120)
            pauses = [round(later - earlier, 3) for earlier, later in pairwise(times)]
            assert pauses[:6] == [1, 2, 4, 8, 16, 30]
            assert node.kubelet.calls.keys() == {"connections", "List"}, "nothing else is asked of it"
            # it is back for a while, and the first pause is as short as before
            node.kubelet.problem = ""
            await asyncio.sleep(45)
            is_away(node)
