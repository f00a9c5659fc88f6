"""How often the kubelet is read and called, for all subscribers together."""

import asyncio
from itertools import pairwise
from typing import Final

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.runtime.kubelet_takeover import CHECK_SECONDS

from tests.fakes.background import background
from tests.fakes.kubelet_answers import read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Node, is_away

pytestmark = virtual_time
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
