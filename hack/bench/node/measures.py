"""Measures the agent on a real node: response times, time until an unhealthy device shows, memory and CPU with 110 pods."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from hack.bench.footprint import cpu_seconds
from hack.bench.memory import charged_mib
from hack.bench.results import Result, judged, result, worst
from tests.cluster.node.containerd import NRI_SOCKET
from tests.cluster.observe import Observer, Seen
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

_CREATING_PODS, _CONTAINERS = 10, 10
_CREATE_GOAL_SECONDS = {0: 0.001, 1: 0.005}
_RELAY_SOCKET = "/run/nri/relay.sock"
_END_SECONDS = 10.0
_BREAKS = 10
_BREAK_GOAL_SECONDS = 0.15
# the kubelet's own, for comparison: it reports every ten seconds
_KUBELET_SECONDS = 10.0
# the kubelet's default bound of pods on a node
_PODS = 110
_HOLDERS = 8
_AT_ONCE = 10
_IDLE_SECONDS = 30


def create_container(of: NodeUnderTest) -> dict[str, Result]:
    """Seconds that the agent takes to respond to the runtime for a container, with and without a device.

    The runtime creates the containers of a node one after the other, so all others wait for this.
    A relay between runtime and agent measures it, in a separate part of the run: it would slow down the other
    measurements.
    """
    taken: dict[str, float] = {}
    with _relayed(of, taken):
        for number in range(_CREATING_PODS):
            for count in _CREATE_GOAL_SECONDS:
                _pod_of_many(of, f"create-{count}-{number}", count)
    return {
        f"create_container_{count}": result(
            [seconds for name, seconds in taken.items() if name.startswith(f"create-{count}-")], "s", goal
        )
        for count, goal in _CREATE_GOAL_SECONDS.items()
    }


def _pod_of_many(of: NodeUnderTest, name: str, count: int) -> None:
    limits = {of.kinds["many"].resource: count} if count else None
    of.run(pod(name, [container(f"c{number}", limits) for number in range(_CONTAINERS)]))
    of.delete(name)


@contextmanager
def _relayed(of: NodeUnderTest, taken: dict[str, float]) -> Iterator[None]:
    """The agent speaks to the runtime through the relay; afterwards `taken` has the duration of each creation."""
    sockets = [str(of.node.outside(path)) for path in (_RELAY_SOCKET, NRI_SOCKET)]
    command = [sys.executable, "-m", "hack.bench.node.nri_relay", *sockets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout is not None
            relay.stdout.readline()  # it listens
            with of.agent_with({"--nri-socket": _RELAY_SOCKET}):
                of.wait_advertised()
                yield
            output, _ = relay.communicate(timeout=_END_SECONDS)
        finally:
            relay.kill()
    for line in output.splitlines():
        creation = json.loads(line)
        taken[f"{creation['pod']}/{creation['container']}"] = creation["seconds"]


def health_to_node(nri: NodeUnderTest, bare: NodeUnderTest) -> dict[str, Result]:
    """Seconds until the Node shows an unhealthy device: with our agent and operator, and with the bare kubelet.

    A plugin reports a device as unhealthy -> the Node has less allocatable. One device per round, in turn.
    """
    ours, kubelets = [], []
    with Observer.nodes(nri.control_plane.admin_kubeconfig) as nodes:
        for run in range(_BREAKS):
            ours.append(_breaks(nri, nodes, run))
            # not always right after its last report
            time.sleep(random.uniform(0, _KUBELET_SECONDS))
            kubelets.append(_breaks(bare, nodes, run))
    for of in (nri, bare):
        for run in range(_BREAKS):
            of.plugins.set_health(of.kinds["many"].resource, f"many-{run}", True)
        of.wait_advertised()
    return {
        "health_to_node_nri": result(ours, "s", _BREAK_GOAL_SECONDS),
        "health_to_node_bare": result(kubelets, "s", _KUBELET_SECONDS),
    }


def _breaks(of: NodeUnderTest, nodes: Observer, run: int) -> float:
    kind = of.kinds["many"]
    left = len(kind.files) - run - 1

    def shows(seen: Seen) -> bool:
        node = seen.object
        is_ours = node.metadata.name == of.node.name and node.status is not None
        return is_ours and (node.status.allocatable or {}).get(kind.resource) == str(left)

    began = time.monotonic()
    of.plugins.set_health(kind.resource, f"many-{run}", False)
    return nodes.wait(shows, began, 30).at - began


def full(of: NodeUnderTest) -> dict[str, Result]:
    """Memory in MiB and CPU in percent of a core, idle, with 110 running pods; 8 of them hold a device each."""
    resource = of.kinds["many"].resource
    names = [f"full-{number}" for number in range(_PODS)]
    for first in range(0, _PODS, _AT_ONCE):
        for number in range(first, min(first + _AT_ONCE, _PODS)):
            limits = {resource: 1} if number < _HOLDERS else None
            of.create(pod(names[number], [container("main", limits)]))
        for number in range(first, min(first + _AT_ONCE, _PODS)):
            of.wait_running(names[number])
    pid = of.agent.pid
    assert pid is not None
    cpu, memory = [cpu_seconds(pid)], []
    began = time.monotonic()
    for second in range(1, _IDLE_SECONDS + 1):
        time.sleep(max(0.0, began + second - time.monotonic()))
        cpu.append(cpu_seconds(pid))
        memory.append(charged_mib(pid))
    passed = time.monotonic() - began
    of.remove_pods()
    each = [100 * (after - before) for before, after in pairwise(cpu)]
    return {
        "agent_memory_110": result(memory, "MiB", 44),
        "agent_cpu_110": judged(100 * (cpu[-1] - cpu[0]) / passed, worst(each), "%", 0.3, _IDLE_SECONDS),
    }
