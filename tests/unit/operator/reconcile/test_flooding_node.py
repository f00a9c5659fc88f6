"""A node whose token writes without end: how many requests that costs, counted by kind."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_operator.informers.memory_bounds import MOST_OF_NODE
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.reconcile.turn import REQUESTS_AT_ONCE, REQUESTS_PER_SECOND

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.bench import Bench, with_pod

OBJECTS = 1500
SECONDS = 60


def made(number: int, **fields: Any) -> NodeDeviceRecord:
    return node_device(f"mad.example.com/r{number:05}", uid=f"uid-{number}", created=f"{number:05}", **fields)


async def flood(bench: Bench, changed: Callable[[int], list[NodeDeviceRecord]]) -> Counter[str]:
    """Each second these objects have changed, and the node is reconciled. Returns how many requests there were, by kind."""
    for second in range(SECONDS):
        bench.now[0] += 1.0
        await bench.settle(*changed(second))
    return Counter(write.split()[0] for write in bench.cluster.writes)


async def test_objects_without_end_cost_what_those_that_count_do(bench: Bench) -> None:
    each = OBJECTS // SECONDS

    def more(second: int) -> list[NodeDeviceRecord]:
        return [made(second * each + number, available=1) for number in range(each)]

    writes = await flood(bench, more)
    assert writes["conditions"] <= MOST_OF_NODE + SECONDS * REQUESTS_PER_SECOND
    assert writes["apply"] <= SECONDS
    assert len(bench.recorder.posted) == 1, "that there are too many"


def conditions(second: int) -> list[NodeDeviceRecord]:
    """Somebody has changed all of their specs, which conditions name."""
    return [made(number, available=1, generation=second + 1) for number in range(256)]


def allocations(second: int) -> list[NodeDeviceRecord]:
    pods = [held(f"d{second}", pod=f"p{number}") for number in range(256)]
    return [made(0, available=1, allocations=tuple(pods))]


def comings_and_goings(second: int) -> list[NodeDeviceRecord]:
    """Allocations of pods that are there, every other second: each is reported on its pod."""
    pods = [held("d", pod=f"p{number}") for number in range(256)]
    return [made(0, available=1, allocations=tuple(pods) if second % 2 else ())]


def strangers(second: int) -> list[NodeDeviceRecord]:
    """Allocations of pods that do not exist: for each one is asked."""
    pods = [held("d", pod=f"s{second}-{number}") for number in range(256)]
    return [made(0, available=1, allocations=tuple(pods))]


@pytest.mark.parametrize("changed", [conditions, allocations, comings_and_goings, strangers])
async def test_changes_without_end_cost_a_bound(bench: Bench, changed: Callable[[int], list[NodeDeviceRecord]]) -> None:
    for number in range(256):
        with_pod(bench, f"p{number}")
    await flood(bench, changed)
    ours = ("apply_conditions", "apply_pod_device", "read_pod", "delete_pod_device")
    requests = sum(bench.cluster.calls[call] for call in ours)
    # one that is made is a read and a write
    assert REQUESTS_AT_ONCE <= requests <= 2 * (REQUESTS_AT_ONCE + SECONDS * REQUESTS_PER_SECOND)
    assert {event.node for event in bench.recorder.posted} <= {"node-a"}, "each counts for the rate of its node"


async def test_what_was_left_undone_is_done_once_there_is_budget(bench: Bench) -> None:
    for second in range(3):
        await bench.settle(*conditions(second))
    bench.cluster.writes.clear()
    seconds = await bench.reconciler.reconcile("node-a")
    assert bench.cluster.writes == []
    rounds = 0
    while seconds is not None:
        assert seconds > 0.0
        bench.now[0] += seconds
        seconds = await bench.reconciler.reconcile("node-a")
        rounds += 1
    assert len(bench.cluster.writes) == 256
    assert rounds < 256 / 5
    shown = {found.conditions["Ready"].observed_generation for found in bench.cluster.node_devices.values()}
    assert shown == {3}
