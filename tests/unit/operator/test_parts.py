"""A resource of parts: decoded, counted for the Node and for pods, and its physical devices named in Events and evictions."""

from typing import Any

from nodedevice_operator.capacity.decide import contradictions, desired_count
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.observability.transitions import transitions
from nodedevice_operator.remediation.eviction_policy import candidates

from tests.fakes.operator.operator_model import GPU
from tests.unit.operator.objects.bodies import node_device_body, of_json

Json = dict[str, Any]


def gpu(name: str, allocated: int, healthy: int = 80, **more: Any) -> Json:
    parts = {"total": 80, "healthy": healthy, "allocated": allocated, "available": max(healthy - allocated, 0)}
    return {"id": name, "health": "Healthy" if healthy else "Unhealthy", "parts": parts, **more}


def held(pod: str, *parts: tuple[str, int, str], container: str = "main") -> Json:
    entries = [{"parent": parent, "parts": count, "numbers": numbers} for parent, count, numbers in parts]
    return {"namespace": "default", "name": pod, "podUID": f"uid-{pod}", "container": container, "parts": entries}


def record(*devices: Json, allocations: tuple[Json, ...] = (), advertise: str = "Sum", **more: Any) -> NodeDeviceRecord:
    of = [device["parts"] for device in devices]
    status: Json = {
        "total": 80 * len(of),
        "healthy": sum(parts["healthy"] for parts in of),
        "allocated": sum(parts["allocated"] for parts in of),
        "available": sum(parts["available"] for parts in of),
        "parts": {"advertise": advertise, "largestAvailable": max(parts["available"] for parts in of)},
        "devices": list(devices),
        "allocations": list(allocations),
        "endpoint": {"state": "Running"},
    }
    return node_device_record(of_json(node_device_body(**{**status, **more}), NodeDeviceSchema))


TWO = (held("p", ("GPU-a", 16, "0-15")), held("q", ("GPU-a", 34, "16-49")))


def test_the_node_shows_what_is_held_and_what_is_free_on_all_devices_or_on_one() -> None:
    both = gpu("GPU-a", 50), gpu("GPU-b", 0, healthy=60)
    assert desired_count(record(*both, allocations=TWO), is_withdrawn=False) == 50 + 30 + 60
    assert desired_count(record(*both, allocations=TWO, advertise="Largest"), is_withdrawn=False) == 50 + 60
    assert contradictions(record(*both, allocations=TWO)) == ()


def test_more_than_the_parts_say_is_reported_and_not_advertised() -> None:
    found = record(gpu("GPU-a", 50), allocations=TWO, available=31)
    assert contradictions(found) == ("available is 31, but 30 of the devices listed are healthy and not allocated",)
    assert desired_count(found, is_withdrawn=False) == 50 + 30
    more = record(gpu("GPU-a", 51), allocations=TWO)
    assert contradictions(more) == ("allocated is 51, but 50 devices are listed as allocated",)


def test_a_broken_device_is_named_to_each_pod_with_parts_of_it() -> None:
    before = record(gpu("GPU-a", 50), gpu("GPU-b", 0), allocations=TWO)
    after = record(gpu("GPU-a", 50, healthy=0, reason="Xid79"), gpu("GPU-b", 0), allocations=TWO)
    events = transitions(before, after)
    assert {event.about.name for event in events} == {before.name, "p", "q"}
    assert all("GPU-a" in event.message and "Xid79" in event.message for event in events)
    found = candidates([after], {GPU: "evict"})
    evicted = {candidate.name: candidate.why for candidate in found.values()}
    assert evicted == dict.fromkeys("pq", f"GPU-a of {GPU} unhealthy")
