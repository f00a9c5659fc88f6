"""What the API server takes and refuses in a NodeDevice's spec: identity, resource names, cordons.

The rules are in crds/nodedevices.yaml; the refusals are asserted by the sentence that a person sees. Resource names follow
Kubernetes' own rule for extended resources (pkg/apis/core/v1/helper, IsExtendedResourceName).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from nodedevice_api.names import node_device_name

from hack.cluster.api import Client, NodeDevice, PatchType
from hack.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import Body, node_device, refusal

pytestmark = pytest.mark.cluster

LONGEST_DOMAIN = ".".join(["a" * 60] * 4)  # 243 characters; one more is the last that is allowed
LONGEST_NAME = "n" * 63


@pytest.fixture
def client(installed: ControlPlane) -> Client:
    return installed.client


@pytest.fixture
def stored(client: Client) -> Iterator[str]:
    """Name of a NodeDevice that is really there."""
    name = node_device_name("spec-node", "example.com/gpu")
    client.create(node_device(name, nodeName="spec-node"))
    yield name
    client.delete(NodeDevice, name)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="as small as can be"),
        pytest.param({"resourceName": "v/x"}, id="domain without a dot"),
        pytest.param({"resourceName": "example.com/A_b.C-9"}, id="capitals, underscore and dot in the name"),
        pytest.param({"resourceName": f"{'d' * 70}.example.com/gpu"}, id="label longer than 63, as Kubernetes allows"),
        pytest.param({"resourceName": f"a{LONGEST_DOMAIN}/{LONGEST_NAME}"}, id="longest domain and longest name"),
        pytest.param({"resourceName": "notkubernetes.example.com/gpu"}, id="kubernetes in the domain"),
        pytest.param({"resourceName": "dra.kubernetes.io/devices"}, id="of a DRA driver of Kubernetes' own"),
        pytest.param(
            {"resourceName": "requests.example.com/devices"}, id="of a DRA driver whose name begins as a quota's"
        ),
        pytest.param({"nodeName": "ip-10-0-0-1.eu.compute.internal"}, id="node name with dots"),
        pytest.param({"cordonedDevices": [{"id": "*", "reason": "all of it"}, {"id": "gpu-0"}]}, id="cordons"),
        pytest.param({"cordonedDevices": [{"id": "i" * 128, "reason": "r" * 1024}]}, id="longest cordon"),
        pytest.param(
            {"cordonedDevices": [{"id": "gpu-0", "by": "é" * 128, "at": "2026-01-01T12:00:00.123456789+01:00"}]},
            id="longest notes",
        ),
        pytest.param({"cordonedDevices": [{"id": f"gpu-{n}"} for n in range(1800)]}, id="as many cordons as fit"),
    ],
)
def test_takes_spec(client: Client, spec: Body) -> None:
    answer = client.create(node_device(**spec), dry_run=True)
    assert answer["spec"] == {"nodeName": "node-a", "resourceName": "example.com/gpu", **spec}


SHAPE = "must be domain/name, such as vendor.com/gpu: a lower-case DNS name, one slash, then at most 63 of letters"


def noted(**notes: Any) -> Body:
    return {"cordonedDevices": [{"id": "gpu-0", **notes}]}


REFUSED_NOTES = [
    pytest.param(noted(by=""), "by in body should be at least 1 chars long", id="by nobody"),
    pytest.param(noted(by="b" * 129), "cordonedDevices[0].by: Too long", id="by of 129"),
    pytest.param(noted(by="alice\nbob"), "cordonedDevices[0].by in body should match", id="by on two lines"),
    pytest.param(noted(by=7), "by in body must be of type string", id="by a number"),
    pytest.param(noted(at="yesterday"), 'at in body must be of type date-time: "yesterday"', id="at a word"),
    pytest.param(noted(at="2026-01-01"), "at in body must be of type date-time", id="at a day"),
    pytest.param(noted(at="2026-01-01T12:00:00"), "at in body must be of type date-time", id="at without a time zone"),
    pytest.param(noted(at=""), "at in body must be of type date-time", id="at nothing"),
    pytest.param(noted(at=f"2026-01-01T12:00:00.{'1' * 20}Z"), "cordonedDevices[0].at: Too long", id="at of 40"),
]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param({"resourceName": "gpu"}, SHAPE, id="no domain"),
        pytest.param({"resourceName": "example.com/a/b"}, SHAPE, id="two slashes"),
        pytest.param({"resourceName": "Example.com/gpu"}, SHAPE, id="capital in the domain"),
        pytest.param({"resourceName": "example..com/gpu"}, SHAPE, id="empty label"),
        pytest.param({"resourceName": "-example.com/gpu"}, SHAPE, id="domain begins with a dash"),
        pytest.param({"resourceName": "example.com/gpu-"}, SHAPE, id="name ends with a dash"),
        pytest.param({"resourceName": "example.com/"}, SHAPE, id="empty name"),
        pytest.param({"resourceName": f"example.com/{LONGEST_NAME}n"}, SHAPE, id="name of 64"),
        pytest.param(
            {"resourceName": f"aa{LONGEST_DOMAIN}/gpu"},
            "the domain may have at most 244 characters, so that requests.<name> stays valid for quotas",
            id="domain of 245",
        ),
        pytest.param({"resourceName": None}, "spec.resourceName", id="no resource name"),
        pytest.param({"nodeName": None}, "spec.nodeName", id="no node name"),
        pytest.param({"nodeName": ""}, "spec.nodeName in body should be at least 1 chars long", id="empty node name"),
        pytest.param({"nodeName": "node_a"}, "spec.nodeName in body should match", id="no DNS name"),
        pytest.param({"nodeName": "n" * 254}, "spec.nodeName: Too long", id="node name of 254"),
        pytest.param({"cordonedDevices": [{"reason": "fan"}]}, "cordonedDevices[0].id: Required", id="cordon of what?"),
        pytest.param({"cordonedDevices": [{"id": ""}]}, "should be at least 1 chars long", id="cordon of nothing"),
        pytest.param({"cordonedDevices": [{"id": "i" * 129}]}, "cordonedDevices[0].id: Too long", id="id of 129"),
        *REFUSED_NOTES,
        pytest.param(
            {"cordonedDevices": [{"id": "a"}, {"id": "a"}]},
            'spec.cordonedDevices[1]: Duplicate value: {"id":"a"}',
            id="cordoned twice",
        ),
        pytest.param(
            {"cordonedDevices": [{"id": f"gpu-{n}"} for n in range(4097)]},
            "spec.cordonedDevices: Too many: 4097: must have at most 4096 items",
            id="more cordons than devices",
        ),
    ],
)
def test_refuses_spec(client: Client, spec: Body, sentence: str) -> None:
    assert sentence in refusal(lambda: client.create(node_device(**spec), dry_run=True))


@pytest.mark.parametrize(
    ("field", "value"), [("nodeName", "node-b"), ("resourceName", "example.com/other")], ids=["node", "resource"]
)
def test_identity_cannot_change(client: Client, stored: str, field: str, value: str) -> None:
    def change() -> Any:
        return client.patch(NodeDevice, stored, {"spec": {field: value}}, patch_type=PatchType.MERGE)

    sentence = f"{field} is the identity of a NodeDevice and cannot change; delete this object and create another"
    assert sentence in refusal(change)


def test_status_cannot_come_by_the_front_door(client: Client, stored: str) -> None:
    body = {"spec": {"cordonedDevices": [{"id": "gpu-0"}]}, "status": {"total": 5}}
    answer = client.patch(NodeDevice, stored, body, patch_type=PatchType.MERGE)
    assert answer["spec"]["cordonedDevices"] == [{"id": "gpu-0"}]
    assert "status" not in answer


def test_spec_cannot_come_by_the_status_door(client: Client, stored: str) -> None:
    body = {"spec": {"cordonedDevices": [{"id": "gpu-0"}]}, "status": {"total": 5}}
    answer = client.patch(NodeDevice.Status, stored, body, patch_type=PatchType.MERGE)
    assert answer["status"] == {"total": 5}
    assert "cordonedDevices" not in answer["spec"]
