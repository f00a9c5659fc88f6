"""From the API server's JSON to records: the fields that count, with their owners."""

from typing import Any

import msgspec
from nodedevice_api import names
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import NodeSchema, node_record
from nodedevice_operator.objects.poddevice import PodDeviceSchema, pod_device_record
from nodedevice_operator.objects.unwatched import LeaseSchema, PodSchema, lease_record, pod_record
from nodedevice_operator.reconcile.poddevice_reconciler import encode
from nodedevice_operator.reconcile.poddevices import desired_pod_devices

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.objects.bodies import of_json
from tests.unit.operator.objects.records import held


def owned(manager: str, operation: str, *resources: str, subresource: str = "status") -> dict[str, Any]:
    fields: dict[str, Any] = {f"f:{resource}": {} for resource in resources}
    content = {"f:status": {"f:capacity": fields, "f:allocatable": {".": {}, **fields}, "f:conditions": {}}}
    return {"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": content}


NODE: dict[str, Any] = {
    "metadata": {
        "name": "node-a",
        "uid": "uid-1",
        "resourceVersion": "41",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [
            owned("kubelet", "Update", "cpu", "vendor.com/other"),
            owned(OURS, "Apply", "example.com/gpu"),
            owned(OURS, "Update", "example.com/nic"),
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}},
        ],
    },
    "spec": {"podCIDR": "10.0.0.0/24"},
    "status": {
        "capacity": {"cpu": "32", "example.com/gpu": "1k", "example.com/nic": "2", "vendor.com/other": "0"},
        "allocatable": {"cpu": "32", "example.com/gpu": "8", "hugepages-2Mi": "0", "attach.kubernetes.io/x": "3"},
        "images": [{"names": ["a"]}],
    },
}


def test_node() -> None:
    record = node_record(of_json(NODE, NodeSchema))
    assert (record.name, record.uid, record.resource_version) == ("node-a", "uid-1", 41)
    assert record.made == "2026-01-02T03:04:05Z"
    assert set(record.resources) == {"example.com/gpu", "example.com/nic", "vendor.com/other"}
    gpu, nic = record.resources["example.com/gpu"], record.resources["example.com/nic"]
    assert (gpu.capacity, gpu.allocatable, gpu.is_capacity_ours) == (1000, 8, True)
    assert gpu.is_allocatable_ours
    # our name by another operation is another owner
    assert (nic.is_capacity_ours, nic.capacity_strangers) == (False, frozenset({f"{OURS} (Update status)"}))
    assert record.resources["vendor.com/other"].capacity_strangers == {"kubelet"}


def test_a_heartbeat_leaves_a_node_equal() -> None:
    later = {**NODE, "metadata": {**NODE["metadata"], "resourceVersion": "99"}}
    records = [node_record(of_json(body, NodeSchema)) for body in (NODE, later)]
    assert records[0] == records[1]
    assert records[1].resource_version == 99


def test_a_poddevice_comes_back_with_the_fingerprint_it_was_sent_with() -> None:
    (want,) = desired_pod_devices("node-a", [node_device(allocations=(held("gpu-0", "gpu-1"),))])
    body = msgspec.to_builtins(encode(want, "pd-1"))
    body["metadata"] |= {"resourceVersion": "3", "labels": {"anything": "else"}}
    record = pod_device_record(msgspec.convert(body, PodDeviceSchema))
    assert record.fingerprint == want.content.fingerprint()
    del body["metadata"]["ownerReferences"]
    changed = pod_device_record(msgspec.convert(body, PodDeviceSchema))
    assert changed.fingerprint != record.fingerprint


def test_a_pod_asks_for_what_its_limits_name_but_not_for_0() -> None:
    limits = {"limits": {"example.com/gpu": "1", "example.com/nic": "0"}}
    made = {"metadata": {"deletionTimestamp": "then"}, "spec": {"initContainers": [{"resources": limits}]}}
    pod = pod_record(of_json(made, PodSchema))
    assert (pod.asks_for, pod.is_ending) == (frozenset({"example.com/gpu"}), True)


def test_what_a_lease_reports_of_refusals_has_bounds() -> None:
    annotations = {names.REFUSALS_ANNOTATION: "\n".join(["", "x" * 5000, *map(str, range(100))])}
    body = {"metadata": {"name": "node-a", "annotations": annotations}, "spec": {"renewTime": "then"}}
    lease = lease_record(msgspec.convert(body, LeaseSchema))
    assert (lease.renewed, lease.duration_seconds, lease.refusals[1]) == ("then", 60, "0")
    assert len(lease.refusals) < 16
    assert max(map(len, lease.refusals)) == 900
