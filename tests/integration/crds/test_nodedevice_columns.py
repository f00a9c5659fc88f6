"""NodeDevices as a person meets them in kubectl: short name, columns, field selectors, explanations."""

from collections.abc import Iterator

import pytest
from nodedevice_api.names import OPERATOR_FIELD_MANAGER, Condition, node_device_name

from tests.cluster.api import NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import allocation, apply_status, condition, device, node_device

pytestmark = pytest.mark.cluster

NODE = "columns-node"
GPU = node_device_name(NODE, "example.com/gpu")
NIC = node_device_name(NODE, "example.com/nic")
BARE = node_device_name("columns-other", "example.com/gpu")


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> Iterator[ControlPlane]:
    """Three NodeDevices, one of them with a status whose numbers are all different."""
    client = installed.client
    client.create(node_device(GPU, nodeName=NODE))
    client.create(node_device(NIC, nodeName=NODE, resourceName="example.com/nic"))
    client.create(node_device(BARE, nodeName="columns-other"))
    numbers = {"total": 9, "healthy": 8, "cordoned": 4, "allocated": 3, "available": 2, "waitingPods": 7}
    listed = {
        "devices": [device(f"d{n}", "Unhealthy" if n == 8 else "Healthy") for n in range(9)],
        "allocations": [allocation("uid", "main", "d0", "d1", "d2")],
    }
    agent = {
        "agent": {"version": "0.1.0", "delivery": "nri", "servedBy": "kubelet"},
        "conditions": [condition(Condition.REGISTERED)],
    }
    apply_status(client, GPU, {**numbers, **listed, **agent})
    summary = [condition(Condition.READY, "False", reason="LeaseExpired"), condition(Condition.AGENT_READY, "Unknown")]
    apply_status(client, GPU, {"conditions": summary}, OPERATOR_FIELD_MANAGER)
    yield installed
    for name in (GPU, NIC, BARE):
        client.delete(NodeDevice, name)


def table(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_columns(cluster: ControlPlane) -> None:
    header, row = table(cluster.kubectl("get", "nd", GPU))
    assert " ".join(header) == "NAME NODE RESOURCE TOTAL HEALTHY ALLOCATED AVAILABLE READY CORDONED AGE"
    assert row[:-1] == [GPU, NODE, "example.com/gpu", "9", "8", "3", "2", "False", "4"]
    header, row = table(cluster.kubectl("get", "nd", GPU, "-o", "wide"))
    assert header[7:] == ["READY", "CORDONED", "REASON", "AGENT", "DELIVERY", "SERVED-BY", "WAITING", "AGE"]
    assert row[7:-1] == ["False", "4", "LeaseExpired", "Unknown", "nri", "kubelet", "7"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [(f"spec.nodeName={NODE}", {GPU, NIC}), (f"spec.nodeName={NODE},spec.resourceName=example.com/nic", {NIC})],
    ids=["by node", "by node and resource"],
)
def test_field_selectors(cluster: ControlPlane, selector: str, found: set[str]) -> None:
    printed = cluster.kubectl("get", "nodedevices", "--field-selector", selector, "--no-headers")
    assert {row[0] for row in table(printed)} == found
