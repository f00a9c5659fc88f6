"""What the API server takes and refuses in a NodeDevice's status.

Each rule of crds/nodedevices.yaml has a row that it takes and one that it refuses, with the sentence that the agent's log will
show. Statuses are tried in a dry run: validation is the same, and nothing is left to clean up.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from nodedevice_api.names import Condition, node_device_name

from tests.cluster.api import Client, NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import (
    NOW,
    Body,
    allocation,
    apply_status,
    condition,
    device,
    free,
    node_device,
    refusal,
)

pytestmark = pytest.mark.cluster

NAME = node_device_name("status-node", "example.com/gpu")
ONE_HELD = {"total": 2, "healthy": 2, "allocated": 1, "available": 1, "devices": [device("a"), device("b")]}


@pytest.fixture(scope="module")
def client(installed: ControlPlane) -> Iterator[Client]:
    installed.client.create(node_device(NAME, nodeName="status-node"))
    yield installed.client
    installed.client.delete(NodeDevice, NAME)


FULL: Body = {
    **{"total": 3, "healthy": 1, "cordoned": 1, "allocated": 1, "releasing": 1, "reserved": 1, "available": 0},
    "endpoint": {"state": "Running", "since": NOW, "preStartRequired": True, "getPreferredAllocationAvailable": False},
    "agent": {"version": "0.1.0", "delivery": "nri", "servedBy": "nodedevice"},
    "devices": [
        device(
            "a", presence="Present", cordonedSince=NOW, cordonedBy="alice", numaNodes=[0, 1], attributes={"model": "X"}
        ),
        device("b", "Unhealthy", reason="ReportedUnhealthy", message="no answer", since=NOW),
        device("c", "Unhealthy", presence="Missing", reason="NotListed", message="held, not listed", since=NOW),
    ],
    "devicesOmitted": 0,
    "allocations": [
        allocation("uid-1", "main", "b", namespace="default", name="pod-1", since=NOW),
        allocation("uid-2", "main", "c", namespace="default", name="pod-2", releasing=True),
    ],
    "allocationsOmitted": 0,
    "waiting": [{"podUID": "uid-3", "container": "main", "reason": "NotEnoughDevices", "message": "1 asked, 0 free"}],
    "rememberedCordons": [{"id": "a", "reason": "fan", "by": "alice", "at": NOW}, {"id": "*"}],
    "conditions": [condition(Condition.REGISTERED, message="plugin runs", observedGeneration=1)],
}


# one device that is shared, and one that is still held whole
PARTS: Body = {
    **{"total": 84, "healthy": 80, "allocated": 17, "available": 64},
    "parts": {
        **{"placement": "SameParent", "choice": "BinPack", "containers": "Any", "advertise": "Largest"},
        **{"smPercent": 0, "largestAvailable": 64},
    },
    "devices": [
        device("a", parts={"total": 80, "healthy": 80, "allocated": 16, "available": 64}),
        device("b", "Unhealthy", reason="Lost", parts={"total": 4, "healthy": 0, "allocated": 1, "available": 0}),
    ],
    "devicesOmitted": 0,
    "allocations": [
        {"podUID": "uid-1", "container": "main", "parts": [{"parent": "a", "parts": 16, "numbers": "0-14,79"}]},
        {"podUID": "uid-2", "container": "main", "deviceIDs": ["b"]},
    ],
}


def claimed(claim: str, device_id: str, **of_claim: Any) -> Body:
    """What one container has by one claim."""
    return {**allocation("uid", "a", device_id), "claim": {"name": claim, **of_claim}}


SHARED = [
    {"id": "d0", "shareID": "s-1", "consumedCapacity": {"memory": "10Gi"}},
    {"id": "d0", "shareID": "s-2", "adminAccess": True, "extendedResource": "example.com/gpu"},
]
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute", "since": "2026-01-01T12:00:00Z"}
OF_DRA = {
    **{"total": 1, "healthy": 1, "allocated": 1, "driver": "gpu.example.com", "pool": "node-a/first"},
    "devices": [{**device("d0"), "taints": [TAINT]}],
    "allocations": [claimed("v", "d0", uid="uid-v", devices=SHARED), claimed("w", "d0")],
}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="nothing known yet"),
        pytest.param(FULL, id="every field"),
        pytest.param({"total": 0, "endpoint": {"state": "Running"}}, id="registered, no list yet"),
        pytest.param(
            {**ONE_HELD, "allocations": [allocation("uid", "app", "a"), allocation("uid", "init", "a")]},
            id="init and app container hold the same device",
        ),
        pytest.param(
            {
                **{"total": 2, "healthy": 1, "allocated": 1, "available": 1},
                "devices": [device("a"), device("b", "Unhealthy", presence="Missing")],
                "allocations": [allocation("uid", "main", "b")],
            },
            id="held device no longer listed counts in total",
        ),
        pytest.param(
            {
                **{"total": 1000, "healthy": 999, "available": 999, "devicesOmitted": 999},
                "devices": [device("a", "Unhealthy")],
            },
            id="most devices left out",
        ),
        pytest.param(
            {"allocations": [allocation("uid", "z", "a"), allocation("uid-2", "a", "b")]},
            id="sorted by pod, one of whose UIDs begins as the other",
        ),
        pytest.param(PARTS, id="parts"),
        pytest.param(OF_DRA, id="of a DRA driver"),
    ],
)
def test_takes_status(client: Client, status: Body) -> None:
    assert apply_status(client, NAME, status, dry_run=True)["status"] == status


SORTED = "status.devices: Invalid value: devices must be sorted by id, each id once"
SORTED_ALLOCATIONS = (
    "status.allocations: Invalid value: allocations must be sorted by podUID, container and claim, each once"
)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        pytest.param({"total": 1, "healthy": 2}, "healthy cannot exceed total", id="healthy"),
        pytest.param({"total": 1, "cordoned": 2}, "cordoned cannot exceed total", id="cordoned"),
        pytest.param(
            {"total": 2, "healthy": 1, "available": 2}, "available cannot exceed healthy", id="available, not healthy"
        ),
        pytest.param(
            {"total": 2, "releasing": 1, "reserved": 2}, "reserved cannot exceed releasing", id="awaited, not releasing"
        ),
        pytest.param(
            {"total": 3, "healthy": 2, "allocated": 1, "releasing": 1, "available": 2},
            "allocated + releasing + available cannot exceed total; a held device that is no longer listed counts in total",
            id="more than there are",
        ),
        pytest.param({**free("a", "b"), "devices": [device("b"), device("a")]}, SORTED, id="devices unsorted"),
        pytest.param(
            {**free("a"), "total": 2},
            "status.total: Invalid value: total must be the number of devices listed, or of their parts, plus devicesOmitted",
            id="a device missing from the list",
        ),
        pytest.param(
            {**free("a"), "devices": [device("a", "Unhealthy")]},
            "status.healthy: Invalid value: healthy must be the number of devices whose health is Healthy, or of their healthy",
            id="healthy miscounted",
        ),
        pytest.param(
            {**ONE_HELD, "allocated": 2, "available": 0, "allocations": [allocation("uid", "main", "a")]},
            "status.allocated: Invalid value: allocated cannot exceed the device IDs and parts listed in allocations",
            id="held by nobody",
        ),
        pytest.param(
            {**PARTS, "allocations": PARTS["allocations"][:1]},
            "allocated cannot exceed the device IDs and parts",
            id="held",
        ),
        pytest.param(
            {**PARTS, "parts": {**PARTS["parts"], "smPercent": 101}},
            "status.parts.smPercent: Invalid value: 101: parts.smPercent in body should be less than or equal to 100",
            id="more percent than there are",
        ),
        pytest.param(
            {"devices": [device("a", parts={"total": 2, "healthy": 2, "allocated": 1, "available": 2})]},
            "allocated + available, and healthy, cannot exceed total",
            id="more parts than there are",
        ),
        pytest.param({"allocations": [{"podUID": "u", "container": "c"}]}, "has deviceIDs or parts", id="of nothing"),
        pytest.param(
            {"allocations": [allocation("uid-2", "a", "x"), allocation("uid-1", "a", "y")]},
            SORTED_ALLOCATIONS,
            id="allocations unsorted by pod",
        ),
        pytest.param(
            {"allocations": [allocation("uid", "a", "x"), allocation("uid", "a", "y")]},
            SORTED_ALLOCATIONS,
            id="container twice",
        ),
        pytest.param({"allocations": [claimed("w", "x"), claimed("v", "x")]}, SORTED_ALLOCATIONS, id="claims unsorted"),
        # fields alone
        pytest.param({"devices": [device("a", "healthy")]}, '"healthy": supported values: "Healthy"', id="health"),
        pytest.param({"devices": [device("i" * 129)]}, "devices[0].id: Too long", id="id of 129"),
        pytest.param({"devices": [device(f"{n:04}") for n in range(4097)]}, "Too many: 4097", id="4097 devices"),
    ],
)
def test_refuses_status(client: Client, status: Body, sentence: str) -> None:
    assert sentence in refusal(lambda: apply_status(client, NAME, status, dry_run=True))
