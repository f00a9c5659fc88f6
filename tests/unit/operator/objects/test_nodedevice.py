"""NodeDevice, from the API server's JSON to its record: what is kept, and what that weighs."""

from typing import Any

import msgspec
import pytest
from nodedevice_api import names
from nodedevice_api.nodedevice import DeviceTaint, HeldParts, PartCounts
from nodedevice_operator.objects.node_parts import node_parts
from nodedevice_operator.objects.nodedevice import (
    AllocationRecord,
    ClaimedShare,
    DeviceRecord,
    NodeDeviceRecord,
    StoredCondition,
    node_device_record,
)
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

from tests.fakes.operator.operator_model import waits
from tests.unit.operator.objects.bodies import node_device_body, of_json, wrote


@pytest.mark.parametrize(
    ("agent", "delivery"),
    [
        pytest.param({"delivery": "nri", "runtime": "nri"}, "nri", id="of this release"),
        pytest.param({"runtime": "nri"}, "nri", id="of the release before"),
        pytest.param({"version": "0.1.0", "runtime": "kubelet"}, "kubelet", id="stored by the definition of before"),
        pytest.param({"delivery": "kubelet"}, "kubelet", id="of the release after"),
        pytest.param({"runtime": ""}, "", id="not the agent's to say"),
    ],
)
def test_the_delivery_by_both_names(agent: dict[str, str], delivery: str) -> None:
    """The fail-closed policy selects by it."""
    body = node_device_body(total=1, endpoint={"state": "Running"}, agent=agent)
    assert node_device_record(msgspec.convert(body, NodeDeviceSchema)).delivery == delivery
    assert node_parts(msgspec.convert(body, NodeDeviceSchema)).delivery == delivery


def test_all_that_an_agent_reports_is_kept() -> None:
    held = {"podUID": "uid-a", "container": "main", "namespace": "ns", "name": "pod-a", "notInjected": True}
    fields = ("total", "healthy", "cordoned", "allocated", "releasing", "reserved", "available")
    numbers: dict[str, Any] = dict(zip(fields, range(9, 2, -1), strict=True))
    ready = {"type": "Ready", "status": "False"}
    body = node_device_body(
        **numbers,
        endpoint={"state": "Stopped", "since": "then"},
        agent={"delivery": "nri", "servedBy": names.SERVED_BY_KUBELET},
        parts={"advertise": "Largest", "largestAvailable": 2},
        devices=[
            {"id": "free", "health": "Healthy"},
            {"id": "gpu", "health": "Healthy", "parts": {"total": 4, "healthy": 3, "allocated": 2, "available": 1}},
            {"id": "held", "health": "Healthy", "numaNodes": [1]},
            {"id": "lost", "health": "Unhealthy", "reason": "Xid", "presence": "Missing"},
        ],
        devicesOmitted=2,
        allocations=[
            {**held, "deviceIDs": ["x"], "parts": [{"parent": "gpu", "parts": 2, "numbers": "0-1"}]},
            {"podUID": "uid-c", "container": "main", "deviceIDs": ["held"], "releasing": True, "deviceIDsOmitted": 2},
        ],
        allocationsOmitted=1,
        waiting=[{"podUID": "uid-b", "container": "side", "reason": "R", "message": "m", "final": True}],
        rememberedCordons=[{"id": "lost"}, {"id": "a"}],
        conditions=[
            {**ready, "reason": "R", "message": "m", "lastTransitionTime": "t", "observedGeneration": 6},
            {"type": "Mine", "status": "True"},
        ],
    )
    body["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    body["metadata"]["managedFields"] = [wrote("nodedevice-agent", "status", "total"), wrote("x", "status", "total")]
    body["spec"]["cordonedDevices"] = [{"id": "a", "by": "alice"}, {"id": "b"}]
    found = node_device_record(of_json(body, NodeDeviceSchema))
    parts = (HeldParts("gpu", 2, "0-1"),)
    assert found == NodeDeviceRecord(
        *("node-a.example.com.gpu", "nd-1", 2, 7, "node-a", "example.com/gpu", "uid-1"),
        **numbers,
        created="2026-01-02T03:04:05Z",
        cordons=2,
        has_status=True,
        endpoint="Stopped",
        endpoint_since="then",
        delivery="nri",
        # a free healthy device is only counted
        devices={
            "gpu": DeviceRecord("Healthy", "", False, ()),
            "held": DeviceRecord("Healthy", "", False, (1,)),
            "lost": DeviceRecord("Unhealthy", "Xid", True, ()),
        },
        listed=("free", "gpu", "held", "lost"),
        devices_omitted=2,
        allocations=(
            AllocationRecord("ns", "pod-a", "uid-a", "main", ("x",), 0, False, True, parts),
            AllocationRecord("", "", "uid-c", "main", ("held",), 2, True),
        ),
        allocations_omitted=1,
        waiting=(waits("uid-b", "side", "R", message="m", final=True),),
        conditions={"Ready": StoredCondition("False", "R", "m", "t", 6)},
        edited_by=frozenset({"x"}),
        lost_cordons=frozenset({"lost"}),
        parts={"gpu": PartCounts(4, 3, 2, 1)},
        largest_available=2,
        served_by=names.SERVED_BY_KUBELET,
        cordoned_ids=frozenset({"a", "b"}),
        cordoned_by={"a": "alice"},
    )
    assert (found.resource_version, found.age) == (7, ("2026-01-02T03:04:05Z", "node-a.example.com.gpu"))


def test_what_a_dra_driver_offers_is_kept_as_far_as_it_is_shown() -> None:
    claim = {
        "name": "claim-a",
        "uid": "uid-of-the-claim",
        "devices": [
            {"id": "x", "shareID": "s", "consumedCapacity": {"memory": "1Gi"}},
            {"id": "x", "extendedResource": "example.com/gpu"},
            {"id": "x", "adminAccess": True},
        ],
    }
    held = {"podUID": "uid-a", "container": "main", "namespace": "ns", "name": "pod-a", "deviceIDs": ["x"]}
    taint = {"key": "k", "value": "v", "effect": "NoSchedule", "since": "then"}
    body = node_device_body(
        total=1,
        agent={"delivery": "nri", "servedBy": names.SERVED_BY_DRA},
        driver="gpu.example.com",
        pool="p" * 300,
        devices=[{"id": "x", "health": "Healthy", "taints": [taint]}],
        allocations=[{**held, "claim": claim}],
    )
    found = node_device_record(of_json(body, NodeDeviceSchema))
    assert (found.served_by, found.driver, found.pool) == (names.SERVED_BY_DRA, "gpu.example.com", "p" * 253)
    assert found.devices["x"].taints == (DeviceTaint(key="k", value="v", effect="NoSchedule", since="then"),)
    shares = (ClaimedShare("x", "s", ""), ClaimedShare("x", "", "example.com/gpu"))
    assert found.allocations == (
        AllocationRecord("ns", "pod-a", "uid-a", "main", ("x",), 0, False, claim="claim-a", shares=shares),
    )


def test_of_equal_devices_on_many_nodes_there_is_one_object_unless_it_has_taints() -> None:
    def made(node: str, **more: Any) -> NodeDeviceRecord:
        row = {"podUID": "u", "container": "c", "deviceIDs": ["gpu-0"], "claim": claim}
        device = {"id": "gpu-0", "health": "Healthy", "numaNodes": [1], **more}
        body = node_device_body(agent={"servedBy": names.SERVED_BY_DRA}, devices=[device], allocations=[row])
        body["spec"]["nodeName"] = node
        return node_device_record(of_json(body, NodeDeviceSchema))

    claim = {"name": "claim-a", "devices": [{"id": "gpu-0", "extendedResource": "example.com/gpu"}]}
    one, other = made("node-a"), made("node-b")
    assert one.listed is other.listed
    assert one.devices["gpu-0"] is other.devices["gpu-0"]
    assert one.allocations[0].shares[0] is other.allocations[0].shares[0]
    # whoever may write objects could fill the memory with long ones that are long gone
    taints = [{"key": "k" * 300, "effect": "NoSchedule"}]
    one, other = made("node-a", taints=taints), made("node-b", taints=taints)
    assert one.devices["gpu-0"] == other.devices["gpu-0"]
    assert one.devices["gpu-0"] is not other.devices["gpu-0"]


def test_of_an_object_without_a_status_nothing_is_known() -> None:
    body = node_device_body()
    body["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]
    body["spec"]["cordonedDevices"] = []
    del body["status"]
    found = node_device_record(of_json(body, NodeDeviceSchema))
    assert found == NodeDeviceRecord("node-a.example.com.gpu", "nd-1", 2, 7, "node-a", "example.com/gpu", None)


def in_claim(name: str, *devices: dict[str, str]) -> dict[str, Any]:
    return {"podUID": "", "container": "", "claim": {"name": name, "devices": list(devices)}}


IDS = [f"gpu-{number}" for number in range(100)]
CONTAINER = {"podUID": "u", "container": "c"}
TAINT = {"key": "k" * 300, "effect": "e"}


@pytest.mark.parametrize(
    ("status", "weight"),
    [
        pytest.param({"rememberedCordons": [{"id": "a", "by": "b" * 100}]}, 100, id="a lost cordon"),
        pytest.param({"devices": [{"id": each, "health": "Healthy"} for each in IDS]}, 100 * 400, id="devices"),
        pytest.param({"devices": [{"id": "a", "health": "Healthy", "numaNodes": [0] * 64}]}, 64 * 8, id="NUMA nodes"),
        pytest.param({"devices": [{"id": "x", "health": "Healthy", "taints": [TAINT] * 16}]}, 16 * 700, id="taints"),
        pytest.param({"allocations": [{**CONTAINER, "deviceIDs": IDS}]}, 100 * 60, id="an allocation"),
        pytest.param({"allocations": [in_claim("c" * 253)]}, 400 + 253, id="the name of a claim"),
        pytest.param({"allocations": [in_claim("c", *[{"id": "x", "shareID": "s"}] * 64)]}, 64 * 400, id="shares"),
        pytest.param({"waiting": [{**CONTAINER, "reason": "R", "message": "m" * 1000}]}, 1400, id="a pod"),
        pytest.param({"conditions": [{"type": "Ready", "status": "", "message": "m" * 2000}]}, 2400, id="a condition"),
    ],
)
def test_a_record_weighs_as_much_as_its_lists(status: dict[str, Any], weight: int) -> None:
    empty = node_device_record(of_json(node_device_body(total=1), NodeDeviceSchema)).weight
    assert empty < 100
    assert node_device_record(of_json(node_device_body(**status), NodeDeviceSchema)).weight >= empty + weight


@pytest.mark.parametrize(
    ("status", "has_status"),
    [
        ({}, False),
        ({"total": 0}, True),
        ({"endpoint": {}}, True),
        ({"healthy": 1}, False),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, False),
    ],
    ids=["empty", "a total", "an endpoint without a state", "neither", "a condition"],
)
def test_an_agent_has_written_a_total_or_an_endpoint(status: dict[str, Any], has_status: bool) -> None:
    record = node_device_record(of_json(node_device_body(**status), NodeDeviceSchema))
    assert (record.has_status, record.endpoint) == (has_status, None)


@pytest.mark.parametrize(("advertise", "largest"), [("Largest", 2), ("All", None), ("a word of tomorrow", None)])
def test_only_where_it_is_advertised_the_largest_is_of_use(advertise: str, largest: int | None) -> None:
    body = node_device_body(parts={"advertise": advertise, "largestAvailable": 2})
    assert node_device_record(of_json(body, NodeDeviceSchema)).largest_available == largest


def test_of_many_cordons_only_the_number_is_known() -> None:
    def found(count: int) -> NodeDeviceRecord:
        body = node_device_body()
        cordons = [{"id": f"d{number:03}", "by": "alice"} for number in range(count)]
        body["spec"]["cordonedDevices"] = cordons
        return node_device_record(of_json(body, NodeDeviceSchema))

    few, many = found(256), found(257)
    assert (few.cordons, len(few.cordoned_ids), len(few.cordoned_by), few.knows_cordons) == (256, 256, 256, True)
    assert (many.cordons, len(many.cordoned_ids), len(many.cordoned_by), many.knows_cordons) == (257, 0, 0, False)
