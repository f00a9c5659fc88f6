"""How long the agent takes to answer the runtime for a container, with and without a device. Seconds.

The runtime makes one container of the node after the other, so this is what all others wait for.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hack.bench.results import Result, result
from hack.cluster.node.containerd import NRI_SOCKET
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

_PODS = 10
_CONTAINERS = 10
_GOAL_SECONDS = {0: 0.001, 1: 0.005}
_RELAY_SOCKET = "/run/nri/relay.sock"
_END_SECONDS = 10.0


def create_container(of: NodeUnderTest) -> dict[str, Result]:
    """With a relay between runtime and agent, in a part of the run of its own: it would slow down what else is measured."""
    taken: dict[str, float] = {}
    with _relayed(of, taken):
        for number in range(_PODS):
            for count in _GOAL_SECONDS:
                _pod_of_many(of, f"create-{count}-{number}", count)
    return {
        f"create_container_{count}": result(
            [seconds for name, seconds in taken.items() if name.startswith(f"create-{count}-")], "s", goal
        )
        for count, goal in _GOAL_SECONDS.items()
    }


def _pod_of_many(of: NodeUnderTest, name: str, count: int) -> None:
    limits = {of.kinds["many"].resource: count} if count else None
    of.run(pod(name, [container(f"c{number}", limits) for number in range(_CONTAINERS)]))
    of.delete(name)


@contextmanager
def _relayed(of: NodeUnderTest, taken: dict[str, float]) -> Iterator[None]:
    """The agent speaks to the runtime through the relay; `taken` has afterwards what each creation took."""
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
