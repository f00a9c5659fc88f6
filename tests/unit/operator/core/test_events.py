"""Which changes of a NodeDevice are told, and that each is told once."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_operator.core.events import merged, some, transitions
from nodedevice_operator.core.records import Allocation, Condition, Device, NodeDeviceRecord, Waiting

from tests.fakes.operator_model import GPU, node_device

IDS = tuple(f"gpu-{number}" for number in range(8))


def record(broken: int = 0, listed: tuple[str, ...] = IDS, **fields: Any) -> NodeDeviceRecord:
    devices = {device_id: Device("Unhealthy", "Xid", False, ()) for device_id in IDS[:broken]}
    return node_device(devices=devices, listed=listed, **fields)


def waiting(reason: str, message: str = "", container: str = "main") -> Waiting:
    return Waiting("default", "pod-a", "uid-a", container, reason, message)


def held(pod: str, container: str, *device_ids: str, **fields: Any) -> Allocation:
    return Allocation(
        "default", pod, f"uid-{pod}", container, device_ids, 0, fields.pop("is_releasing", False), **fields
    )


def told(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in transitions(old, new)]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(None, id="never seen"),
        pytest.param(record(has_status=False), id="said nothing"),
        pytest.param(replace(record(), uid="another"), id="another object"),
    ],
)
def test_first_sight_is_no_transition(old: NodeDeviceRecord | None) -> None:
    assert told(old, record(broken=2, endpoint="Stopped", waiting=(waiting("NotEnoughDevices"),))) == []


def test_devices_that_break_together_are_one_event() -> None:
    (event,) = told(record(broken=1), record(broken=8))
    assert event == (
        "DeviceUnhealthy",
        f"7 devices (gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 2 more) of {GPU} on node-a unhealthy (Xid)",
    )
    assert told(record(broken=8), record(broken=8)) == []


def test_recovered_is_what_is_listed_as_healthy_or_left_out_as_such() -> None:
    recovered = ("DeviceRecovered", f"1 device (gpu-0) of {GPU} on node-a healthy again")
    assert told(record(broken=1), record()) == [recovered]
    assert told(record(broken=1), record(listed=IDS[1:])) == []
    assert told(record(broken=1), record(listed=(), devices_omitted=300)) == [recovered]


def test_a_pod_is_told_of_the_devices_that_it_holds() -> None:
    holders = (
        held("pod-a", "init", "gpu-0"),
        held("pod-a", "main", "gpu-0", "gpu-1", "gpu-7"),
        held("pod-b", "main", "gpu-6"),
        held("pod-c", "main", "gpu-2", is_releasing=True),
        Allocation("", "", "uid-x", "main", ("gpu-3",), 0, False),
    )
    well, broken = record(allocations=holders), record(broken=4, allocations=holders)
    on_node, on_pod = transitions(well, broken)
    assert (on_node.about.kind, on_pod.about.kind, on_pod.about.name) == ("NodeDevice", "Pod", "pod-a")
    assert (on_pod.about.uid, on_pod.on_node, on_pod.type) == ("uid-pod-a", "node-a", "Warning")
    assert (
        on_pod.message == f"2 devices (gpu-0, gpu-1) of {GPU} on node-a unhealthy (Xid); held by this pod until it ends"
    )
    assert transitions(broken, broken) == ()
    _, recovered = transitions(broken, well)
    assert (recovered.about, recovered.type) == (on_pod.about, "Normal")
    assert recovered.message == f"2 devices (gpu-0, gpu-1) of {GPU} on node-a healthy again"


def test_what_breaks_one_after_the_other_is_one_event_on_the_pod_too() -> None:
    holders = (held("pod-a", "main", "gpu-0", "gpu-1"),)
    well, one, both = (record(broken=number, allocations=holders) for number in range(3))
    first, second = transitions(well, one)[1], transitions(one, both)[1]
    assert merged(first, second).message == transitions(well, both)[1].message


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("Running", "Stopped", "EndpointStopped"),
        ("Stopped", "Gone", "EndpointGone"),
        ("Gone", "Running", "EndpointRunning"),
        ("Running", "Running", None),
        (None, "Running", None),
        ("Running", None, None),
    ],
)
def test_endpoint(before: str | None, after: str | None, reason: str | None) -> None:
    found = [event[0] for event in told(record(endpoint=before), record(endpoint=after))]
    assert found == ([reason] if reason else [])


def test_a_waiting_pod_is_told_once_per_reason() -> None:
    none, few = record(), record(waiting=(waiting("NotEnoughDevices", "0 of 2"),))
    (event,) = transitions(none, few)
    assert (event.about.kind, event.about.name, event.about.uid, event.on_node) == ("Pod", "pod-a", "uid-a", "node-a")
    assert event.message == f"container main waits for {GPU} on node-a: NotEnoughDevices (0 of 2)"
    assert told(few, record(waiting=(waiting("NotEnoughDevices", "1 of 2"),))) == []
    assert len(told(few, record(waiting=(waiting("AllocateFailed"), waiting("NotEnoughDevices"))))) == 1


def runs_without(kind: str, container: str = "main", **fields: Any) -> dict[str, Any]:
    """Fields of a record in which that container runs without its devices, recorded as its own or not."""
    if kind == "held":
        return {"allocations": (held("pod-a", container, "gpu-0", runs_without=True, **fields),)}
    return {"waiting": (Waiting("default", "pod-a", "uid-pod-a", container, "NotEnoughDevices", "", True),)}


@pytest.mark.parametrize("kind", ["held", "waiting"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(record(), id="unknown"),
        pytest.param(record(allocations=(held("pod-a", "main", "gpu-0"),)), id="held"),
        pytest.param(record(waiting=(Waiting("default", "pod-a", "uid-pod-a", "main", "AnyReason", ""),)), id="waits"),
        pytest.param(record(has_status=False, endpoint=None), id="first word of the resource"),
    ],
)
def test_a_container_that_runs_without_its_devices_is_told_of_on_its_pod(before: NodeDeviceRecord, kind: str) -> None:
    events = [event for event in transitions(before, record(**runs_without(kind))) if event.reason != "DevicesWaiting"]
    (event,) = events
    assert (event.reason, event.type) == ("RunsWithoutDevices", "Warning")
    assert (event.about.kind, event.about.name, event.about.uid, event.on_node) == (
        "Pod",
        "pod-a",
        "uid-pod-a",
        "node-a",
    )
    assert event.message == (
        f"container main runs without the {GPU} that it asked for on node-a; delete the pod, so that it starts anew and gets it"
    )


def test_it_is_told_at_each_transition_and_at_no_other_change() -> None:
    held_so, waits_so = record(**runs_without("held")), record(**runs_without("waiting"))
    assert [reason for reason, _ in told(waits_so, held_so)] == []
    assert [reason for reason, _ in told(held_so, replace(held_so, cordoned=1))] == []
    well = record(allocations=(held("pod-a", "main", "gpu-0"),))
    assert told(held_so, well) == []
    assert [reason for reason, _ in told(well, held_so)] == ["RunsWithoutDevices"]
    both = replace(held_so, waiting=runs_without("waiting", "side")["waiting"])
    again = [message for reason, message in told(held_so, both) if reason == "RunsWithoutDevices"]
    assert [message.partition(" runs")[0] for message in again] == ["container side"]


@pytest.mark.parametrize(
    "allocation",
    [
        pytest.param(held("pod-a", "main", "gpu-0", is_releasing=True, runs_without=True), id="a pod that is over"),
        pytest.param(Allocation("", "", "uid", "main", ("gpu-0",), 0, False, True), id="a pod nobody knows by name"),
    ],
)
def test_nothing_is_told_of(allocation: Allocation) -> None:
    assert told(record(), record(allocations=(allocation,))) == []


def registered(reason: str, message: str = "", **fields: Any) -> NodeDeviceRecord:
    return record(conditions={"Registered": Condition("True", reason, message, "then", 1)}, **fields)


@pytest.mark.parametrize("reason", ["DevicesRefused", "CheckpointUnreadable"])
@pytest.mark.parametrize("before", [registered("EndpointRunning"), record(has_status=False, conditions={})])
def test_what_somebody_has_to_mend_is_told_once(before: NodeDeviceRecord, reason: str) -> None:
    now = registered(reason, "gpu-0 twice")
    (event,) = transitions(before, now)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", reason)
    assert event.message == f"{GPU} on node-a: gpu-0 twice"
    assert told(now, registered(reason, "gpu-0 and gpu-1 twice")) == []
    assert told(now, registered("EndpointRunning")) == []


def test_who_edits_a_status_is_told_of_once() -> None:
    edited = record(edited_by=frozenset({"kubectl-edit"}))
    (event,) = transitions(record(), edited)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", "StatusEdited")
    assert event.message.startswith(f"{GPU} on node-a: kubectl-edit changed the status")
    assert told(edited, edited) == []
    assert told(edited, record()) == []


def test_some() -> None:
    assert some(["a"]) == "a"
    assert some(list("abcdef")) == "a, b, c, d, e and 1 more"
