"""The operator on a real API server: what DRA drivers offer is shown, and nothing comes of it; slices of no node are counted."""

from collections.abc import Iterator

import pytest
from nodedevice_api import names
from nodedevice_api.names import Reason

from tests.cluster.api import ClusterRole, NodeDevice
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.dra import Slices, devices, resource_slice
from tests.integration.operator_process import OperatorProcess, PlayedNode, PlayNode, delete, operator_writes

POOL = "gpu.example.com/devices"
RESERVED = "gpu.kubernetes.io/devices"
OF_DRA = {
    "agent": {"version": "0.1.0", "delivery": names.DELIVERY_NRI, "servedBy": names.SERVED_BY_DRA},
    "driver": "gpu.example.com",
    "pool": "rack-1",
}


@pytest.fixture
def node(played: PlayNode) -> Iterator[PlayedNode]:
    """One whose agent shows a pool of a driver, and one of a driver whose name Kubernetes keeps for itself."""
    made = played()
    made.renew_lease()
    for resource in (POOL, RESERVED):
        made.make(resource)
    yield made
    for resource in (POOL, RESERVED):
        delete(made.client, NodeDevice, made.nd_name(resource))


@pytest.mark.parametrize("resource", [POOL, RESERVED])
def test_a_pool_is_ready_and_its_node_stays_as_it_is(node: PlayedNode, resource: str) -> None:
    for state, status in (("Running", "True"), ("Gone", "False"), ("Running", "True")):
        node.publish(resource, healthy=2, state=state, **OF_DRA)
        advertised = node.wait_condition("Advertised", status, Reason.SERVED_BY_DRA, resource)
        assert "DRA driver" in advertised["message"]
    node.wait_condition("Ready", "True", Reason.READY, resource)
    node.wait_condition("AgentReady", "True", resource=resource)
    node.wait_condition("Conflict", "False", Reason.NO_CONFLICT, resource)
    assert node.shown(resource) == (None, None)
    assert [each["requestURI"] for each in operator_writes(node.control_plane, f"/nodes/{node.name}")] == []


def test_slices_of_no_node_are_counted_by_driver(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, slices: Slices
) -> None:
    def counted(driver: str = "net.example.com") -> tuple[float, float]:
        label = f'{{driver="{driver}"}}'
        return tuple(  # type: ignore[return-value]  # of two
            operator.metric(f"nodedevice_operator_{what}{label}") for what in ("shared_slices", "shared_slice_devices")
        )

    slices.publish(resource_slice("rack-1", "net.example.com", "", devices(2), pool="rack-1"))
    slices.publish(resource_slice("of-a-node", "local.example.com", node.name, devices(1)))
    slices.publish(resource_slice("rack-2", "net.example.com", "", devices(1), pool="rack-2"))
    wait_until(lambda: counted() == (2, 3), "both are counted")
    assert counted("local.example.com") == (0, 0)
    slices.withdraw("rack-1")
    wait_until(lambda: counted() == (1, 1), "the one that is gone is not counted")
    # no NodeDevice of them
    assert not any("net.example.com" in str(each.metadata) for each in installed.client.list(NodeDevice))


def test_without_the_right_the_operator_works_as_before(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, slices: Slices
) -> None:
    role = installed.client.get(ClusterRole, "nodedevice-operator")
    try:
        role.rules = [rule for rule in role.rules or [] if "resource.k8s.io" not in (rule.apiGroups or [])]
        installed.client.replace(role)
        slices.publish(resource_slice("rack-3", "net.example.com", "", devices(1), pool="rack-3"))
        operator.stop()
        operator.start()
        node.settle()
        assert operator.get("/readyz")[0] == 200
        assert operator.metric('nodedevice_operator_shared_slices{driver="net.example.com"}') == 0
    finally:
        # whole, as it was applied: whoever applies the chart next owns its rules again
        installed.client.delete(ClusterRole, "nodedevice-operator")
        install_chart(installed)
