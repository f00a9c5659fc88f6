"""The operator on a real API server: what DRA drivers offer is shown, and nothing comes of it; slices of no node are counted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.names import Reason

from tests.cluster.api import ClusterRole, NodeDevice, Object, ResourceSlice
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator.pods.pods import Pods
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


@pytest.fixture
def pods(installed: ControlPlane, namespace: str) -> Pods:
    return Pods(installed, namespace)


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


def slice_of(name: str, driver: str, *devices: str, node: str | None = None) -> Object:
    where: dict[str, Any] = {"allNodes": True} if node is None else {"nodeName": node}
    spec = Object(
        driver=driver,
        pool=Object(name=name, generation=1, resourceSliceCount=1),
        devices=[Object(name=each) for each in devices],
        **where,
    )
    return ResourceSlice(metadata=Object(name=name), spec=spec)


Offer = Callable[[Object], None]


@pytest.fixture
def offer(installed: ControlPlane) -> Iterator[Offer]:
    made: list[str] = []

    def create(wanted: Object) -> None:
        installed.client.create(wanted)
        made.append(str(wanted.metadata.name))

    yield create
    for name in made:
        delete(installed.client, ResourceSlice, name)


def test_slices_of_no_node_are_counted_by_driver(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, offer: Offer
) -> None:
    def counted(driver: str = "net.example.com") -> tuple[float, float]:
        label = f'{{driver="{driver}"}}'
        return tuple(  # type: ignore[return-value]  # of two
            operator.metric(f"nodedevice_operator_{what}{label}") for what in ("shared_slices", "shared_slice_devices")
        )

    offer(slice_of("rack-1", "net.example.com", "nic-0", "nic-1"))
    offer(slice_of("of-a-node", "local.example.com", "gpu-0", node=node.name))
    offer(slice_of("rack-2", "net.example.com", "nic-0"))
    wait_until(lambda: counted() == (2, 3), "both are counted")
    assert counted("local.example.com") == (0, 0)
    delete(installed.client, ResourceSlice, "rack-1")
    wait_until(lambda: counted() == (1, 1), "the one that is gone is not counted")
    # no NodeDevice of them
    assert not any("net.example.com" in str(each.metadata) for each in installed.client.list(NodeDevice))


def test_without_the_right_the_operator_works_as_before(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, offer: Offer
) -> None:
    role = installed.client.get(ClusterRole, "nodedevice-operator")
    try:
        role.rules = [rule for rule in role.rules or [] if "resource.k8s.io" not in (rule.apiGroups or [])]
        installed.client.replace(role)
        offer(slice_of("rack-3", "net.example.com", "nic-0"))
        operator.stop()
        operator.start()
        node.settle()
        assert operator.get("/readyz")[0] == 200
        assert operator.metric('nodedevice_operator_shared_slices{driver="net.example.com"}') == 0
    finally:
        # whole, as it was applied: whoever applies the chart next owns its rules again
        installed.client.delete(ClusterRole, "nodedevice-operator")
        install_chart(installed)
