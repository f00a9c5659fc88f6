"""How long until the Node shows that a device has broken: our agent and operator, and the bare kubelet. Seconds."""

import random
import time

from hack.bench.results import Result, result
from hack.cluster.observe import Observer, Seen
from tests.e2e.real_node.node_under_test import NodeUnderTest

_RUNS = 10
_GOAL_SECONDS = 0.15
# the kubelet's own, for comparison: it reports every ten seconds
_KUBELET_SECONDS = 10.0


def health_to_node(nri: NodeUnderTest, bare: NodeUnderTest) -> dict[str, Result]:
    """A plugin says that a device is unhealthy -> fewer are allocatable on the Node. A device each, in turn."""
    ours, kubelets = [], []
    with Observer.nodes(nri.control_plane.admin_kubeconfig) as nodes:
        for run in range(_RUNS):
            ours.append(_breaks(nri, nodes, run))
            # not always just after its last report
            time.sleep(random.uniform(0, _KUBELET_SECONDS))
            kubelets.append(_breaks(bare, nodes, run))
    for of in (nri, bare):
        for run in range(_RUNS):
            of.plugins.set_health(of.kinds["many"].resource, f"many-{run}", True)
        of.wait_advertised()
    return {
        "health_to_node_nri": result(ours, "s", _GOAL_SECONDS),
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
