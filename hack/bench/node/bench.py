"""`make bench-node`: what the agent costs a real node, compared to a bare kubelet with the same plugin.

A table, and build/bench-node.json. All in one run and in turn, on one control plane, so that differences mean something on
a noisy machine. Needs root, as `make e2e` does.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hack.bench.node import measures
from hack.bench.node import pods as node_pods
from hack.bench.node.run import Progress, cluster, run
from hack.bench.results import Result
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node.layout import NodeOptions
from tests.cluster.node.real_node import RealNode
from tests.e2e.real_node.device_plugins import Kind, device_files, event_loop
from tests.e2e.real_node.node_under_test import BARE, KUBELET, NRI, NodeUnderTest

_OUT = Path(__file__).parents[3] / "build" / "bench-node.json"
_DEVICES = 16


def measure(results: dict[str, Result], folder: Path, progress: Progress) -> None:
    """Fills `results`, some rows after each measurement. Raises ClusterError when the cluster or a node does not come up."""
    with ExitStack() as opened:
        control_plane = opened.enter_context(cluster(folder, progress))
        loop = opened.enter_context(event_loop())
        nodes = {
            delivery: opened.enter_context(_node(control_plane, folder, delivery, loop, progress))
            for delivery in (BARE, NRI, KUBELET)
        }
        progress("measuring starts of pods")
        results |= node_pods.starts(nodes)
        progress("measuring starts of pods while the agent is away")
        results |= node_pods.starts_meanwhile(nodes)
        progress("measuring responses to the runtime")
        results |= measures.create_container(nodes[NRI])
        progress("measuring changes of health")
        results |= measures.health_to_node(nodes[NRI], nodes[BARE])
        progress("measuring the agent with 110 pods")
        results |= measures.full(nodes[NRI])


@contextmanager
def _node(
    control_plane: ControlPlane, folder: Path, delivery: str, loop: asyncio.AbstractEventLoop, progress: Progress
) -> Iterator[NodeUnderTest]:
    name = f"bench-{delivery}"
    control_plane.add_namespace(name)
    file = device_files()[0]
    # more IDs than measured changes: a flapping device is damped on purpose
    kind = Kind("many", {f"many-{number}": file for number in range(_DEVICES)})
    # pods that request devices are marked in the whole cluster; on the bare node they would wait forever
    options = NodeOptions(validator=delivery != BARE)
    with RealNode.start(control_plane, name, folder / delivery, progress, options) as node:
        under_test = NodeUnderTest(control_plane, node, delivery, loop, [kind])
        with under_test.running():
            yield under_test


if __name__ == "__main__":
    sys.exit(run(measure, _OUT))
