"""What the API server takes and refuses in a NodeDevice's spec: identity, resource names, cordons.

The rules are in crds/nodedevices.yaml; the refusals are asserted by the sentence that a person sees. Resource names follow
Kubernetes' own rule for extended resources (pkg/apis/core/v1/helper, IsExtendedResourceName).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from nodedevice_api.names import node_device_name

from tests.cluster.api import Client, NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
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


def cordoned(*ids: str, **notes: Any) -> Body:
    return {"cordonedDevices": [{"id": each, **notes} for each in ids]}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="as small as can be"),
        pytest.param({"resourceName": f"{'d' * 70}.example.com/gpu"}, id="label longer than 63, as Kubernetes allows"),
        pytest.param({"resourceName": f"a{LONGEST_DOMAIN}/{LONGEST_NAME}"}, id="longest domain and longest name"),
        pytest.param({"resourceName": "dra.kubernetes.io/devices"}, id="of a DRA driver of Kubernetes' own"),
        pytest.param({"cordonedDevices": [{"id": "*", "reason": "all of it"}, {"id": "gpu-0"}]}, id="cordons"),
        pytest.param(cordoned("a", by="é" * 128, at="2026-01-01T12:00:00.123456789+01:00"), id="longest notes"),
        pytest.param(cordoned(*(f"gpu-{n}" for n in range(1800))), id="as many cordons as fit"),
    ],
)
def test_takes_spec(client: Client, spec: Body) -> None:
    answer = client.create(node_device(**spec), dry_run=True)
    assert answer["spec"] == {"nodeName": "node-a", "resourceName": "example.com/gpu", **spec}


SHAPE = "must be domain/name, such as vendor.com/gpu: a lower-case DNS name, one slash, then at most 63 of letters"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param({"resourceName": "gpu"}, SHAPE, id="no domain"),
        pytest.param({"resourceName": "Example.com/gpu"}, SHAPE, id="capital in the domain"),
        pytest.param({"resourceName": f"example.com/{LONGEST_NAME}n"}, SHAPE, id="name of 64"),
        pytest.param(
            {"resourceName": f"aa{LONGEST_DOMAIN}/gpu"},
            "the domain may have at most 244 characters, so that requests.<name> stays valid for quotas",
            id="domain of 245",
        ),
        pytest.param({"nodeName": ""}, "spec.nodeName in body should be at least 1 chars long", id="empty node name"),
        pytest.param({"nodeName": "node_a"}, "spec.nodeName in body should match", id="no DNS name"),
        pytest.param({"cordonedDevices": [{"reason": "fan"}]}, "cordonedDevices[0].id: Required", id="cordon of what?"),
        pytest.param(cordoned("a", by=""), "by in body should be at least 1 chars long", id="without an author"),
        pytest.param(cordoned("a", by="b\nc"), "cordonedDevices[0].by in body should match", id="by on two lines"),
        pytest.param(cordoned("a", at="now"), 'at in body must be of type date-time: "now"', id="at a word"),
        pytest.param(cordoned("a", "a"), 'cordonedDevices[1]: Duplicate value: {"id":"a"}', id="cordoned twice"),
        pytest.param(cordoned(*map(str, range(4097))), "Too many: 4097: must have at most 4096", id="too many cordons"),
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
