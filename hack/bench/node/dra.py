"""`make bench-dra`: the cost of observing a DRA driver for the agent of a real node, compared to the same agent without
it.

110 pods: 8 have a device of ours each, and 20 a claim each on one of the driver's 8 devices. The two agents run in
turn, in one run on one node, because load of a machine differs between runs. Prints a table and writes
build/bench-dra.json. Needs root and half an hour; BENCH_SECONDS: total time per agent.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

from hack.bench.footprint import cpu_seconds
from hack.bench.memory import charged_mib
from hack.bench.node.run import Progress, cluster, run
from hack.bench.results import Result, judged, result, worst
from tests.cluster.node.layout import NodeOptions
from tests.cluster.node.real_node import RealNode
from tests.cluster.waiting import wait_until
from tests.e2e.real_node.device_plugins import Kind, device_files, event_loop
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.lab import Lab, claiming
from tests.e2e.real_node.node_under_test import NRI, NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.fakes.dra import Slices, claim, resource_slice

_OUT = Path(__file__).parents[3] / "build" / "bench-dra.json"
_NODE, _DRIVER, _MEMORY = "bench-dra", "gpu.example.com", "memory"
# the kubelet's default bound of pods on a node
_PODS, _AT_ONCE = 110, 10
_DEVICES, _CLAIMS = 8, 20
# claims that share one device
_SHARES = 4
_SECONDS = int(os.environ.get("BENCH_SECONDS", "600"))
# with, without, without, with
_TURNS = (True, False, False, True)
_SETTLING_SECONDS = 30
_GOAL_MIB = 44
# of a core, in percent: the limit for observing while idle
_ADDED_CPU = 0.05


class Idle:
    """CPU in percent of a core in each second, memory in MiB after it; of one of the two agents, in all of its turns."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.memory: list[float] = []

    def measure(self, of: NodeUnderTest, seconds: int) -> None:
        pid = of.agent.pid
        assert pid is not None
        spent = [cpu_seconds(pid)]
        began = time.monotonic()
        for second in range(1, seconds + 1):
            time.sleep(max(0.0, began + second - time.monotonic()))
            spent.append(cpu_seconds(pid))
            self.memory.append(charged_mib(pid))
        each = seconds / (time.monotonic() - began)
        self.cpu += [100 * each * (after - before) for before, after in pairwise(spent)]

    @property
    def mean_cpu(self) -> float:
        return sum(self.cpu) / len(self.cpu)


def measure(results: dict[str, Result], folder: Path, progress: Progress) -> None:
    """Fills `results`. Raises ClusterError when the cluster or the node does not come up."""
    with _filled(folder, progress) as of:
        both = {True: Idle(), False: Idle()}
        for number, is_observing in enumerate(_TURNS, start=1):
            progress(f"turn {number} of {len(_TURNS)}, {'with' if is_observing else 'without'} DRA")
            with _agent(of, is_observing=is_observing):
                time.sleep(_SETTLING_SECONDS)
                both[is_observing].measure(of, _SECONDS * 2 // len(_TURNS))
        observing, other = both[True], both[False]
        results["agent_memory_dra"] = result(observing.memory, "MiB", _GOAL_MIB)
        results["agent_memory_without"] = result(other.memory, "MiB", _GOAL_MIB)
        goal = round(other.mean_cpu + _ADDED_CPU, 5)
        results["agent_cpu_dra"] = judged(observing.mean_cpu, worst(observing.cpu), "%", goal, len(observing.cpu))
        results["agent_cpu_without"] = judged(other.mean_cpu, worst(other.cpu), "%", goal, len(other.cpu))


def _agent(of: NodeUnderTest, *, is_observing: bool) -> AbstractContextManager[None]:
    """A fresh agent for each turn, without earlier allocations."""
    if not is_observing:
        return of.agent_with({}, {"NODEDEVICE_OBSERVE_DRA": "false"})
    of.agent.kill()
    of.start_agent()
    return nullcontext()


@contextmanager
def _filled(folder: Path, progress: Progress) -> Iterator[NodeUnderTest]:
    """A node with all of its pods."""
    with ExitStack() as opened:
        control_plane = opened.enter_context(cluster(folder, progress))
        control_plane.add_namespace(_NODE)
        node = opened.enter_context(RealNode.start(control_plane, _NODE, folder / "n", progress, NodeOptions()))
        file = device_files()[0]
        kind = Kind("many", {f"many-{number}": file for number in range(_DEVICES)})
        of = NodeUnderTest(control_plane, node, NRI, opened.enter_context(event_loop()), [kind])
        opened.enter_context(of.running())
        lab = Lab(of, opened.enter_context(DraDriver(control_plane, node, _DRIVER, None)))
        _publish(lab)
        progress(f"starting {_PODS} pods")
        _fill(lab, kind.resource)
        wait_until(lambda: len(lab.status().get("allocations", ())) == _CLAIMS, "all claims are shown")
        yield of


def _publish(lab: Lab) -> None:
    name = lab.of.node.name
    capacity = {_MEMORY: {"value": "80Gi"}}
    attributes = {
        "productName": {"string": "an accelerator of the usual kind"},
        "driverVersion": {"version": "580.95.5"},
        "architecture": {"string": "unified"},
    }
    devices = [
        {
            "name": f"gpu-{number}",
            "allowMultipleAllocations": True,
            "capacity": capacity,
            "attributes": {
                **attributes,
                "uuid": {"string": f"GPU-{number:08d}-0000-0000-0000-000000000000"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
                "resource.kubernetes.io/numaNode": {"int": number // 4},
            },
        }
        for number in range(_DEVICES)
    ]
    Slices(lab.of.control_plane.client).publish(resource_slice(name, _DRIVER, name, devices))
    share: dict[str, Any] = {"capacity": {"requests": {_MEMORY: f"{80 // _SHARES}Gi"}}}
    for number in range(_CLAIMS):
        lab.apply(claim(f"claim-{number}", lab.of.namespace, lab.driver.device_class, **share))


def _fill(lab: Lab, resource: str) -> None:
    bodies = [
        *(pod(f"ours-{number}", [container("main", {resource: 1})]) for number in range(_DEVICES)),
        *(claiming(f"claims-{number}", {"gpu": f"claim-{number}"}) for number in range(_CLAIMS)),
        *(pod(f"plain-{number}", [container("main")]) for number in range(_PODS - _DEVICES - _CLAIMS)),
    ]
    for first in range(0, len(bodies), _AT_ONCE):
        some = bodies[first : first + _AT_ONCE]
        for body in some:
            lab.of.create(body)
        for body in some:
            lab.of.wait_running(body["metadata"]["name"])


if __name__ == "__main__":
    sys.exit(run(measure, _OUT))
