"""Measures how long a pod takes to start, with and without a device, by each way of delivery. Seconds.

Also the effect of a dead or silent agent on pods without devices: none, except for one container. It is the first
after the agent has fallen silent: the runtime waits two seconds for it, then hangs up. It shows as the p99.
"""

import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hack.bench.results import Result, judged, worst
from tests.e2e.real_node.node_under_test import BARE, KUBELET, NRI, NodeUnderTest
from tests.e2e.real_node.pods import container, pod

# each way is six times first, second, ... of a round
_RUNS = 30
_AWAY_RUNS = 20
# our part at the median, with one device and with none
ADDED_SECONDS = 0.005
_WAYS = ((BARE, 0), (NRI, 0), (BARE, 1), (NRI, 1), (KUBELET, 1))

T = TypeVar("T")


def starts(nodes: Mapping[str, NodeUnderTest]) -> dict[str, Result]:
    """A pod is created -> its process runs. Each goal is the bare kubelet's median of the same run plus an allowance.

    Each round begins with another way: cleanup after the previous pod slows down the next start.
    """
    measured: dict[tuple[str, int], list[float]] = {way: [] for way in _WAYS}
    for run in range(_RUNS):
        for delivery, count in turned(_WAYS, run):
            measured[delivery, count].append(start(nodes[delivery], f"start-{count}-{run}", count))
    bare = {count: statistics.median(measured[BARE, count]) for count in (0, 1)}
    return {
        f"pod_start_{delivery}_{count}": judged(
            statistics.median(values), worst(values), "s", round(bare[count] + ADDED_SECONDS, 5), len(values)
        )
        for (delivery, count), values in measured.items()
    }


def turned(ways: Sequence[T], by: int) -> Sequence[T]:
    """The same ways in the same order, starting with the next one."""
    first = by % len(ways)
    return (*ways[first:], *ways[:first])


def start(on: NodeUnderTest, name: str, count: int) -> float:
    """Start one pod, and delete it before this returns."""
    resource = on.kinds["many"].resource
    body = pod(name, [container("main", {resource: count} if count else None)])
    began = time.time()
    on.create(body)
    started = on.started_at(name)
    on.delete(name)
    return started - began


def starts_meanwhile(nodes: Mapping[str, NodeUnderTest]) -> dict[str, Result]:
    """Pods without devices, while the agent of their node is killed or stopped, in turn with pods of the bare kubelet."""
    found = {}
    with _killed(nodes[NRI]):
        found["pod_start_nri_0_killed"] = _in_turn(nodes, "killed")
    with _stopped(nodes[NRI]):
        found["pod_start_nri_0_stopped"] = _in_turn(nodes, "stopped")
    return found


def _in_turn(nodes: Mapping[str, NodeUnderTest], word: str) -> Result:
    measured: dict[str, list[float]] = {BARE: [], NRI: []}
    for run in range(_AWAY_RUNS):
        for delivery in turned((BARE, NRI), run):
            measured[delivery].append(start(nodes[delivery], f"{word}-{run}", 0))
    goal = statistics.median(measured[BARE]) + ADDED_SECONDS
    return judged(statistics.median(measured[NRI]), worst(measured[NRI]), "s", round(goal, 5), _AWAY_RUNS)


@contextmanager
def _killed(of: NodeUnderTest) -> Iterator[None]:
    of.agent.kill()
    try:
        yield
    finally:
        of.start_agent()
        of.wait_advertised()  # its plugins are back as well


@contextmanager
def _stopped(of: NodeUnderTest) -> Iterator[None]:
    of.agent.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        of.agent.signal(signal.SIGCONT)
