"""NodeDevice, from the API server's JSON to its record: what is kept, and what that weighs."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
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

# the second is nobody's whom the operator knows
KINDS = ("Ready", "Mine")


@pytest.mark.parametrize(
    ("agent", "delivery"),
    [
        pytest.param({"delivery": "nri", "runtime": "nri"}, "nri", id="of this release"),
        pytest.param({"runtime": "nri"}, "nri", id="of the release before"),
        pytest.param(
            {"version": "0.1.0", "runtime": "kubelet"}, "kubelet", id="stored by the definition of the release before"
        ),
        pytest.param({"delivery": "kubelet"}, "kubelet", id="of the release after"),
        pytest.param({"runtime": ""}, "", id="not the agent's to say"),
    ],
)
def test_the_delivery_by_both_names(agent: dict[str, str], delivery: str) -> None:
    """The fail-closed policy selects by it."""
    body = node_device_body(total=1, endpoint={"state": "Running"}, agent=agent)
    assert node_device_record(msgspec.convert(body, NodeDeviceSchema)).delivery == delivery
    assert node_parts(msgspec.convert(body, NodeDeviceSchema)).delivery == delivery


def test_node_device() -> None:
    allocation = {"namespace": "default", "name": "pod-a", "podUID": "uid-a", "container": "main", "deviceIDs": ["b"]}
    body = node_device_body(
        total=3,
        healthy=2,
        allocated=1,
        releasing=1,
        reserved=1,
        available=1,
        endpoint={"state": "Running", "preStartRequired": True},
        devices=[
            {"id": "a", "health": "Healthy"},
            {"id": "b", "health": "Healthy", "numaNodes": [1], "attributes": {"model": "x"}},
            {"id": "c", "health": "Unhealthy", "reason": "Xid", "presence": "Missing"},
        ],
        allocations=[{**allocation, "releasing": True, "deviceIDsOmitted": 2}],
        waiting=[{"podUID": "uid-b", "container": "main", "reason": "NotEnoughDevices"}],
        conditions=[{"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "t"} for kind in KINDS],
    )
    record = node_device_record(msgspec.convert(body, NodeDeviceSchema))
    assert (record.node, record.resource) == ("node-a", "example.com/gpu")
    assert (record.owner_uid, record.generation) == ("uid-1", 2)
    assert record.has_status
    assert (record.allocated, record.releasing, record.reserved, record.available) == (1, 1, 1, 1)
    assert record.endpoint == "Running"
    assert set(record.devices) == {"b", "c"}
    assert record.devices["b"].numa_nodes == (1,)
    assert record.devices["c"].is_missing
    assert record.listed == ("a", "b", "c")
    assert record.unhealthy() == {"c"}
    assert record.allocations == (AllocationRecord("default", "pod-a", "uid-a", "main", ("b",), 2, True),)
    assert record.waiting[0].reason == "NotEnoughDevices"
    assert record.is_condition("Ready", "True")
    assert (set(record.conditions), record.cordons, set(record.cordoned_ids)) == ({"Ready"}, 1, {"*"})


def test_all_that_an_agent_reports_is_kept() -> None:
    held = {"podUID": "uid-a", "container": "main", "namespace": "ns", "name": "pod-a", "notInjected": True}
    body = node_device_body(
        total=9,
        healthy=8,
        cordoned=7,
        allocated=6,
        releasing=5,
        reserved=4,
        available=3,
        endpoint={"state": "Stopped", "since": "then"},
        agent={"delivery": "nri", "servedBy": names.SERVED_BY_KUBELET},
        parts={"advertise": "Largest", "largestAvailable": 2},
        devices=[
            {"id": "free", "health": "Healthy"},
            {"id": "gpu", "health": "Healthy", "parts": {"total": 4, "healthy": 3, "allocated": 2, "available": 1}},
        ],
        devicesOmitted=2,
        allocations=[{**held, "deviceIDs": ["x"], "parts": [{"parent": "gpu", "parts": 2, "numbers": "0-1"}]}],
        allocationsOmitted=1,
        waiting=[{"podUID": "uid-b", "container": "side", "reason": "R", "message": "m", "final": True}],
        rememberedCordons=[{"id": "lost"}, {"id": "a"}],
        conditions=[
            {
                "type": "Ready",
                "status": "False",
                "reason": "R",
                "message": "m",
                "lastTransitionTime": "t",
                "observedGeneration": 6,
            }
        ],
    )
    body["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z"
    body["metadata"]["managedFields"] = [wrote("nodedevice-agent", "status", "total"), wrote("x", "status", "total")]
    body["spec"]["cordonedDevices"] = [{"id": "a", "by": "alice"}, {"id": "b"}]
    found = node_device_record(msgspec.json.decode(msgspec.json.encode(body), type=NodeDeviceSchema))
    parts = (HeldParts("gpu", 2, "0-1"),)
    assert found == NodeDeviceRecord(
        "node-a.example.com.gpu",
        "nd-1",
        2,
        7,
        "node-a",
        "example.com/gpu",
        "uid-1",
        created="2026-01-02T03:04:05Z",
        cordons=2,
        has_status=True,
        total=9,
        healthy=8,
        cordoned=7,
        allocated=6,
        releasing=5,
        reserved=4,
        available=3,
        endpoint="Stopped",
        endpoint_since="then",
        delivery="nri",
        devices={"gpu": DeviceRecord("Healthy", "", False, ())},
        listed=("free", "gpu"),
        devices_omitted=2,
        allocations=(AllocationRecord("ns", "pod-a", "uid-a", "main", ("x",), 0, False, True, parts),),
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


@pytest.mark.parametrize(
    ("devices", "claim"),
    [
        pytest.param(
            [{"id": "x", "health": "Healthy", "taints": [{"key": "k" * 300, "effect": "e"}] * 16}], {}, id="taints"
        ),
        pytest.param([], {"name": "c" * 253, "devices": []}, id="the name of a claim"),
        pytest.param([], {"name": "c", "devices": [{"id": "x", "shareID": "s" * 36}] * 64}, id="shares"),
    ],
)
def test_what_claims_and_taints_take_is_weighed(devices: list[dict[str, Any]], claim: dict[str, Any]) -> None:
    def weight(*, is_with: bool) -> int:
        held = {"podUID": "uid-a", "container": "main", "deviceIDs": ["x"], **({"claim": claim} if claim else {})}
        plain = {"podUID": "uid-a", "container": "main", "deviceIDs": ["x"]}
        bare = [{**device, "taints": []} for device in devices]
        body = node_device_body(devices=devices if is_with else bare, allocations=[held if is_with else plain])
        return node_device_record(of_json(body, NodeDeviceSchema)).weight

    texts = sum(len(text) for text in re.findall(r'"([^"]*)"', json.dumps([devices, claim])))
    entries = sum(len(device["taints"]) for device in devices) + len(claim.get("devices", ()))
    assert weight(is_with=True) - weight(is_with=False) > texts / 3 + 400 * entries


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
    assert one.listed[0] is other.listed[0]
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
    found = node_device_record(msgspec.json.decode(msgspec.json.encode(body), type=NodeDeviceSchema))
    assert found == NodeDeviceRecord("node-a.example.com.gpu", "nd-1", 2, 7, "node-a", "example.com/gpu", None)


def test_who_cordoned_a_device_is_known_where_it_is_noted() -> None:
    def by(*cordons: dict[str, str]) -> dict[str, str]:
        body = node_device_body(total=0)
        body["spec"]["cordonedDevices"] = list(cordons)
        return dict(node_device_record(msgspec.convert(body, NodeDeviceSchema)).cordoned_by)

    assert by({"id": "a", "by": "alice"}, {"id": "b", "at": "2026-01-01T12:00:00Z"}) == {"a": "alice"}
    many = [{"id": f"d{number}", "by": "alice"} for number in range(257)]
    assert (len(by(*many[:256])), by(*many)) == (256, {})


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=5))
def test_anything_else_is_refused_by_one_kind_of_error(body: dict[str, Any]) -> None:
    try:
        msgspec.convert(body, NodeDeviceSchema)
    except msgspec.ValidationError:
        return
    raise AssertionError("no metadata, yet it was taken")


def test_a_record_weighs_what_its_lists_do() -> None:
    def weight(**status: Any) -> int:
        return node_device_record(msgspec.convert(node_device_body(**status), NodeDeviceSchema)).weight

    ids = [f"gpu-{number}" for number in range(100)]
    held = {"podUID": "uid-a", "container": "main", "deviceIDs": ids}
    waiting = {"podUID": "uid-a", "container": "main", "reason": "R", "message": "m" * 1000}
    # its one cordon
    assert weight(total=1) < 100
    assert weight(total=1, rememberedCordons=[{"id": "a", "by": "b" * 100}]) > 200
    assert weight(devices=[{"id": each, "health": "Healthy"} for each in ids]) > 100 * 100
    assert weight(allocations=[held]) > 100 * 60
    assert weight(waiting=[waiting]) > 1000
    assert weight(conditions=[{"type": "Ready", "status": "True", "message": "m" * 2000}]) > 2000
    # each entry more than its texts
    for name, entry in {
        "devices": {"id": "", "health": "Healthy"},
        "allocations": {"podUID": "", "container": ""},
        "waiting": {"podUID": "", "container": "", "reason": ""},
        "conditions": {"type": "Ready", "status": "True"},
    }.items():
        assert weight(**{name: [entry] * 10}) >= weight(**{name: [entry]}) + 9 * 100
    on_nodes, on_none = ({"id": "a", "health": "Healthy", "numaNodes": nodes} for nodes in ([*range(64)], []))
    assert weight(devices=[on_nodes]) > weight(devices=[on_none]) + 64 * 8


@pytest.mark.parametrize("served_by", [names.SERVED_BY_NODEDEVICE, names.SERVED_BY_DRA])
def test_an_id_is_one_object_in_its_record_and_one_that_is_not_listed_stays(served_by: str) -> None:
    ids = f"gpu-of-{served_by}", f"gone-of-{served_by}"
    counts = {"total": 4, "healthy": 4, "allocated": 1, "available": 3}
    held = [
        {
            "podUID": "uid-a",
            "container": "main",
            "deviceIDs": [each],
            "parts": [{"parent": each, "parts": 1, "numbers": "0"}],
            "claim": {"name": "c", "devices": [{"id": each, "shareID": "s"}]},
        }
        for each in ids
    ]
    device = {"id": ids[0], "health": "Healthy", "parts": counts}
    body = node_device_body(agent={"servedBy": served_by}, devices=[device], allocations=held)
    body["spec"]["cordonedDevices"] = [{"id": each, "by": "alice"} for each in ids]
    found = node_device_record(of_json(body, NodeDeviceSchema))
    listed = found.listed[0]
    once = [*found.devices, *found.parts]
    for all_ids in (
        found.cordoned_ids,
        found.cordoned_by,
        [each for row in found.allocations for each in row.device_ids],
        [each.parent for row in found.allocations for each in row.parts],
        [each.id for row in found.allocations for each in row.shares],
    ):
        assert sorted(all_ids, reverse=True) == [*ids]
        once += [each for each in all_ids if each == listed]
    assert len(once) == 7
    assert all(each is listed for each in once)


def test_ids_of_other_plugins_are_not_kept_for_other_nodes() -> None:
    """Most are of one device in the world."""
    body = node_device_body(devices=[{"id": "GPU-of-one-node", "health": "Unhealthy"}])
    one, other = (node_device_record(of_json(body, NodeDeviceSchema)) for _ in range(2))
    assert one.listed == other.listed
    assert one.listed is not other.listed
    assert one.listed[0] is not other.listed[0]
    assert next(iter(one.devices)) is not next(iter(other.devices))


@pytest.mark.parametrize(
    ("status", "has_status"),
    [({}, False), ({"total": 0}, True), ({"endpoint": {}}, True), ({"healthy": 1}, False)],
    ids=["empty", "a total", "an endpoint", "neither"],
)
def test_an_agent_has_written_a_total_or_an_endpoint(status: dict[str, Any], has_status: bool) -> None:
    assert node_device_record(of_json(node_device_body(**status), NodeDeviceSchema)).has_status is has_status


def test_an_endpoint_without_a_state_is_none() -> None:
    assert node_device_record(of_json(node_device_body(endpoint={}), NodeDeviceSchema)).endpoint is None


@pytest.mark.parametrize(("advertise", "largest"), [("Largest", 2), ("All", None), ("a word of tomorrow", None)])
def test_only_where_it_is_advertised_the_largest_is_of_use(advertise: str, largest: int | None) -> None:
    body = node_device_body(parts={"advertise": advertise, "largestAvailable": 2})
    assert node_device_record(of_json(body, NodeDeviceSchema)).largest_available == largest


def test_of_many_cordons_only_the_number_is_known() -> None:
    def found(count: int) -> NodeDeviceRecord:
        body = node_device_body()
        body["spec"]["cordonedDevices"] = [{"id": f"d{number:03}"} for number in range(count)]
        return node_device_record(of_json(body, NodeDeviceSchema))

    few, many = found(256), found(257)
    assert (few.cordons, len(few.cordoned_ids), few.knows_cordons) == (256, 256, True)
    assert (many.cordons, len(many.cordoned_ids), many.knows_cordons) == (257, 0, False)


def test_what_a_record_weighs() -> None:
    taint = {"key": "k", "value": "vv", "effect": "eee", "since": "tttt"}
    shares = [{"id": "x", "shareID": "sssss"}, {"id": "x", "extendedResource": "rrrrrr"}]
    body = node_device_body(
        devices=[{"id": "ddd", "health": "Healthy", "numaNodes": [0, 1], "taints": [taint]}],
        allocations=[
            {
                "podUID": "uid-a",
                "container": "main",
                "deviceIDs": ["iiiiiii"],
                "parts": [{"parent": "pppppppp", "parts": 1, "numbers": "nnnnnnnnn"}],
                "claim": {"name": "c" * 10, "devices": shares},
            }
        ],
        waiting=[{"podUID": "u" * 11, "container": "main", "name": "n" * 12, "reason": "r" * 13, "message": "m" * 14}],
        conditions=[{"type": "Ready", "status": "True", "message": "c" * 15}],
        rememberedCordons=[{"id": "i" * 16, "by": "b" * 17}],
    )
    body["spec"]["cordonedDevices"] = [{"id": "o" * 18, "by": "b" * 19}]
    lengths = [*range(1, 20), 3]
    entries = ["device", "allocation", "pod", "condition", "taint", *shares]
    weight = node_device_record(of_json(body, NodeDeviceSchema)).weight
    assert weight == 400 * len(entries) + 64 * (len(lengths) + 2) + sum(lengths)
