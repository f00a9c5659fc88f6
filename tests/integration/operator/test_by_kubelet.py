"""The operator on a real API server, and a node whose kubelet allocates: its capacity is the kubelet's own."""

from collections.abc import Iterator

import pytest
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from hack.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode


@pytest.fixture
def node(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedNode]:
    """A Node whose agent lives, and an operator."""
    operator = OperatorProcess(installed, tmp_path_factory.mktemp("operator"))
    operator.start()
    with PlayedNode(installed) as found:
        found.make()
        found.renew_lease()
        yield found
    operator.close()


def publish_runtime(node: PlayedNode, runtime: str) -> None:
    node.publish(healthy=4, agent={"version": "0.1.0", "runtime": runtime})


def test_a_node_moves_from_one_runtime_to_the_other_and_back(node: PlayedNode) -> None:
    publish_runtime(node, names.RUNTIME_KUBELET)
    node.wait_condition(Condition.ADVERTISED, "False", Reason.BY_KUBELET)
    node.kubelet_writes(capacity={GPU: "4"}, allocatable={GPU: "4"})
    node.wait_condition(Condition.ADVERTISED, "True", Reason.BY_KUBELET)
    node.wait_condition(Condition.READY, "True")
    assert node.owners() == {"kubelet"}
    # the agent moves; the kubelet forgets, and leaves a 0
    publish_runtime(node, names.RUNTIME_NRI)
    node.wait_condition(Condition.CONFLICT, "True", Reason.FOREIGN_OWNER)
    node.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
    # as in docs/operations.md; the kubelet takes its allocatable back at its next sync
    remove = f'[{{"op": "remove", "path": "/status/capacity/{GPU.replace("/", "~1")}"}}]'
    node.control_plane.kubectl("patch", "node", node.name, "--subresource=status", "--type=json", "-p", remove)
    node.kubelet_writes(allocatable={GPU: None})
    node.wait_shown(4)
    node.wait_condition(Condition.CONFLICT, "False")
    # and back: the operator lets go, and says nothing of what the kubelet does then
    publish_runtime(node, names.RUNTIME_KUBELET)
    node.wait_shown(None)
    node.kubelet_writes(capacity={GPU: "3"}, allocatable={GPU: "2"})
    node.wait_condition(Condition.ADVERTISED, "True", Reason.BY_KUBELET)
    assert node.shown() == ("3", "2")
    assert node.events("CapacityRepaired") == []
