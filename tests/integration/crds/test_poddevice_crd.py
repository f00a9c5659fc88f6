"""What the API server takes and refuses in a PodDevice, and how kubectl shows one."""

import pytest
from nodedevice_api.names import OPERATOR_FIELD_MANAGER

from tests.cluster.api import Client, PatchType, PodDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import Body, pod_device, refusal

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(installed: ControlPlane) -> Client:
    return installed.client


def resource(name: str, *device_ids: str) -> Body:
    """What one container holds of one resource."""
    return {"resourceName": name, "devices": [{"id": each, "health": "Healthy"} for each in device_ids]}


def holding(**containers: list[Body]) -> Body:
    """A status in which each container holds these resources."""
    return {"containers": [{"name": name, "resources": resources} for name, resources in containers.items()]}


FULL: Body = {
    "resources": "example.com/gpu=2,example.com/nic=1",
    "devices": "gpu-0,gpu-1,nic-0",
    "health": "gpu-1:Unhealthy",
    "containers": [
        {
            "name": "main",
            "resources": [
                {
                    "resourceName": "example.com/gpu",
                    "devices": [
                        {"id": "gpu-0", "health": "Healthy", "numaNodes": [0]},
                        {"id": "gpu-1", "health": "Unhealthy", "numaNodes": [0, 1]},
                    ],
                },
                {"resourceName": "example.com/nic", "devices": [{"id": "nic-0", "health": "Unknown"}]},
            ],
        }
    ],
}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(None, id="no status yet"),
        pytest.param(FULL, id="every field"),
        pytest.param(holding(a=[resource("v/x", "1")], b=[resource("v/x", "1")]), id="two containers, one device"),
        pytest.param(holding(main=[resource("v/x", *(f"{n:0128}" for n in range(1024)))]), id="1024 devices"),
        pytest.param(
            holding(**{f"c{n:03}": [resource("v/x", "1"), resource("v/y", "2")] for n in range(256)}),
            id="256 containers",
        ),
    ],
)
def test_takes_status_in_one_write(client: Client, namespace: str, status: Body | None) -> None:
    client.apply(pod_device(namespace, status=status), field_manager=OPERATOR_FIELD_MANAGER)
    assert client.get(PodDevice, "pod-a", namespace=namespace).get("status") == status


CONTAINERS = "status.containers: Invalid value: containers must be sorted by name, each name once"
RESOURCES = "resources: Invalid value: resources must be sorted by resourceName, each name once"


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        pytest.param(holding(b=[resource("v/x", "1")], a=[resource("v/x", "2")]), CONTAINERS, id="containers unsorted"),
        pytest.param(holding(a=[resource("v/y", "1"), resource("v/x", "1")]), RESOURCES, id="resources unsorted"),
        pytest.param(holding(a=[resource("v/x", "i" * 129)]), "devices[0].id: Too long", id="id of 129"),
        pytest.param(holding(**{f"c{n:03}": [] for n in range(257)}), "Too many: 257", id="257 containers"),
    ],
)
def test_refuses_status(client: Client, namespace: str, status: Body, sentence: str) -> None:
    assert sentence in refusal(lambda: client.create(pod_device(namespace, status=status)))


@pytest.mark.parametrize("field", ["nodeName", "podUID"])
def test_identity_cannot_change(client: Client, namespace: str, field: str) -> None:
    client.create(pod_device(namespace))
    change = {"spec": {field: "another"}}
    message = refusal(lambda: client.patch(PodDevice, "pod-a", change, namespace=namespace, patch_type=PatchType.MERGE))
    assert "cannot change; delete this object and the operator creates it again" in message


def test_columns(installed: ControlPlane, client: Client, namespace: str) -> None:
    client.create(pod_device(namespace, status=FULL))
    header, row = (line.split() for line in installed.kubectl("get", "pd", "-n", namespace).splitlines())
    assert header == ["NAME", "NODE", "RESOURCES", "DEVICES", "HEALTH", "AGE"]
    assert row[:-1] == ["pod-a", "node-a", FULL["resources"], FULL["devices"], FULL["health"]]
