"""What one node's token, or one device plugin, can do to the policy of required plugins: nothing to the names of others."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from nodedevice_api import names

from tests.cluster import agent_objects
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Client, NodeDevice
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import apply_status
from tests.integration.operator_process import NIC, OperatorProcess, PlayedNode, delete, full

pytestmark = pytest.mark.cluster

# as long as a name may be; 325 of them are more than one expression may hold
LONG = [f"{'d' * 60}.{'d' * 60}.{'d' * 60}.{number:0>59}/{'n' * 63}" for number in range(330)]


@pytest.fixture
def nodes(installed: ControlPlane, operator: OperatorProcess) -> Iterator[tuple[PlayedNode, PlayedNode]]:
    """A node whose token is stolen, and another one."""
    with ExitStack() as stack:
        yield stack.enter_context(PlayedNode(installed)), stack.enter_context(PlayedNode(installed))


@pytest.fixture
def thief(installed: ControlPlane, nodes: tuple[PlayedNode, PlayedNode]) -> Iterator[Client]:
    """With the token of the agent's pod on the first node."""
    evil = nodes[0]
    with client_of_pod(installed, SYSTEM_NAMESPACE, "nodedevice-agent", evil.name) as client:
        yield client
    for resource in LONG:
        delete(installed.client, NodeDevice, evil.nd_name(resource))


def test_one_token_stops_no_name_of_another_node(
    installed: ControlPlane, operator: OperatorProcess, nodes: tuple[PlayedNode, PlayedNode], thief: Client
) -> None:
    evil, good = nodes
    good.settle(delivery="nri")
    for resource in LONG:
        body = agent_objects.node_device(evil.name, resource, evil.uid)
        thief.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)
        apply_status(thief, evil.nd_name(resource), full(healthy=1, delivery="nri"))
    good.make(NIC)
    good.advertise(2, NIC, delivery="nri")
    evil.wait_condition("Advertised", "False", "TooManyNames", LONG[-1])
    assert operator.metric("nodedevice_operator_required_plugins_names") == 2 + 64
    assert "policy cannot be written" not in str(operator.logged("error"))
