"""What pods without devices notice of an agent that is dead or silent: nothing, but for one container. Seconds.

The one is the first after the agent has fallen silent: the runtime waits two seconds for it, then hangs up. It shows as the p99.
"""

import signal
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hack.bench.node.pods import ADDED_SECONDS, start, turned
from hack.bench.results import Result, judged, worst
from tests.e2e.real_node.node_under_test import BARE, NRI, NodeUnderTest

_RUNS = 20


def starts_meanwhile(nodes: Mapping[str, NodeUnderTest]) -> dict[str, Result]:
    """Pods without devices, while the agent of their node is killed or stopped, in turn with those of the bare kubelet."""
    found = {}
    with _killed(nodes[NRI]):
        found["pod_start_nri_0_killed"] = _in_turn(nodes, "killed")
    with _stopped(nodes[NRI]):
        found["pod_start_nri_0_stopped"] = _in_turn(nodes, "stopped")
    return found


def _in_turn(nodes: Mapping[str, NodeUnderTest], word: str) -> Result:
    measured: dict[str, list[float]] = {BARE: [], NRI: []}
    for run in range(_RUNS):
        for runtime in turned((BARE, NRI), run):
            measured[runtime].append(start(nodes[runtime], f"{word}-{run}", 0))
    goal = statistics.median(measured[BARE]) + ADDED_SECONDS
    return judged(statistics.median(measured[NRI]), worst(measured[NRI]), "s", round(goal, 5), _RUNS)


@contextmanager
def _killed(of: NodeUnderTest) -> Iterator[None]:
    of.agent.kill()
    try:
        yield
    finally:
        of.start_agent()
        of.wait_advertised()  # its plugins are back, too


@contextmanager
def _stopped(of: NodeUnderTest) -> Iterator[None]:
    of.agent.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        of.agent.signal(signal.SIGCONT)
