"""Which changes of a NodeDevice are reported, and that each is reported once."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import (
    AllocationRecord,
    DeviceRecord,
    NodeDeviceRecord,
    StoredCondition,
)
from nodedevice_operator.objects.nodedevice_schema import Waiting
from nodedevice_operator.observability.aggregates import DeviceAggregate, some
from nodedevice_operator.observability.events import (
    ROUTINE,
    About,
    Event,
    about_node,
    about_node_device,
    about_pod,
    merged,
    of_many_nodes,
    transitions,
)

from tests.fakes.operator.collaborators import REASONS
from tests.fakes.operator.operator_model import GPU, node_device, not_configured

IDS = tuple(f"gpu-{number}" for number in range(8))


def record(broken: int = 0, listed: tuple[str, ...] = IDS, **fields: Any) -> NodeDeviceRecord:
    devices = {device_id: DeviceRecord("Unhealthy", "Xid", False, ()) for device_id in IDS[:broken]}
    return node_device(devices=devices, listed=listed, **fields)


def waiting(reason: str, message: str = "", container: str = "main") -> Waiting:
    return Waiting("uid-a", container, reason, "default", "pod-a", message)


def held(pod: str, container: str, *device_ids: str, **fields: Any) -> AllocationRecord:
    fields = {"is_releasing": False, **fields}
    return AllocationRecord("default", pod, f"uid-{pod}", container, device_ids, 0, **fields)


def reported(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> list[tuple[str, str]]:
    events = transitions(old, new)
    assert {event.reason for event in events} <= REASONS, "not in docs/reasons.md"
    assert {event.type for event in events} <= {"Normal", "Warning"}
    return [(event.reason, event.message) for event in events]


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(None, id="never seen"),
        pytest.param(record(has_status=False), id="reported nothing"),
        pytest.param(replace(record(), uid="another"), id="another object"),
    ],
)
def test_first_sight_is_no_transition(old: NodeDeviceRecord | None) -> None:
    assert reported(old, record(broken=2, endpoint="Stopped", waiting=(waiting("NotEnoughDevices"),))) == []


def test_what_an_event_is_about() -> None:
    node = NodeRecord("node-a", "uid-a", 1, {})
    assert about_node(node) == About("v1", "Node", "", "node-a", "uid-a", "node-a")
    found = about_node_device(node_device(node="node-a", uid="u"))
    assert found == About("nodedevice.io/v1alpha1", "NodeDevice", "", "node-a.example.com.gpu", "u", "node-a")
    assert about_pod("default", "a", "u") == About("v1", "Pod", "default", "a", "u")


@pytest.mark.parametrize(("nodes", "where"), [(1, "1 more node"), (2, "2 more nodes")])
def test_one_event_for_many_nodes_has_their_number(nodes: int, where: str) -> None:
    found = of_many_nodes("CapacityAdvertised", GPU, nodes)
    kind = About("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "nodedevices.nodedevice.io", "")
    assert found == Event(kind, "Normal", "CapacityAdvertised", f"{GPU}: {ROUTINE['CapacityAdvertised']} on {where}")


def test_cordons_that_follow_one_another_can_be_added_up() -> None:
    first, then, last = cordoned(), cordoned("gpu-0"), cordoned("gpu-0", "gpu-3")
    [one], [other] = transitions(first, then), transitions(then, last)
    assert merged(one, other).message == f"2 devices (gpu-0, gpu-3) of {GPU} on node-a cordoned"


def cordoned(
    *device_ids: str, lost: tuple[str, ...] = (), by: dict[str, str] | None = None, **fields: Any
) -> NodeDeviceRecord:
    ids = frozenset(device_ids)
    return record(cordons=len(ids), cordoned_ids=ids, cordoned_by=by or {}, lost_cordons=frozenset(lost), **fields)


ON_A = f"of {GPU} on node-a"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        pytest.param(
            cordoned(),
            cordoned("gpu-0", "gpu-3"),
            [("DevicesCordoned", f"2 devices (gpu-0, gpu-3) {ON_A} cordoned")],
            id="some",
        ),
        pytest.param(
            cordoned("gpu-0", "gpu-3"),
            cordoned("gpu-3", "gpu-4"),
            [
                ("DevicesCordoned", f"1 device (gpu-4) {ON_A} cordoned"),
                ("DevicesUncordoned", f"1 device (gpu-0) {ON_A} uncordoned"),
            ],
            id="one for another",
        ),
        pytest.param(
            cordoned(),
            cordoned("gpu-0", "gpu-3", by={"gpu-0": "alice", "gpu-3": "alice"}),
            [("DevicesCordoned", f"2 devices (gpu-0, gpu-3) {ON_A} cordoned by alice")],
            id="with a name",
        ),
        pytest.param(
            cordoned("gpu-4", by={"gpu-4": "carol"}),
            cordoned("gpu-0", "gpu-3", "gpu-4", "gpu-5", by={"gpu-0": "bob", "gpu-3": "alice", "gpu-4": "carol"}),
            [("DevicesCordoned", f"3 devices (gpu-0, gpu-3, gpu-5) {ON_A} cordoned by alice, bob")],
            id="with two names, and one that was there",
        ),
        pytest.param(
            cordoned("gpu-0", "gpu-3", by={"gpu-0": "alice", "gpu-3": "bob"}),
            cordoned("gpu-3", by={"gpu-3": "bob"}),
            [("DevicesUncordoned", f"1 device (gpu-0) {ON_A} uncordoned (cordoned by alice)")],
            id="nobody knows by whom it was uncordoned",
        ),
        pytest.param(
            cordoned("gpu-0", by={"gpu-0": "alice"}), cordoned("gpu-0", by={"gpu-0": "bob"}), [], id="another name"
        ),
        pytest.param(cordoned(), cordoned("*"), [("DevicesCordoned", f"all devices {ON_A} cordoned")], id="all"),
        pytest.param(cordoned("all"), cordoned(), [("DevicesUncordoned", f"all devices {ON_A} uncordoned")], id="word"),
        pytest.param(cordoned("gpu-0"), cordoned("gpu-0", broken=0, available=3), [], id="nothing of cordons"),
        pytest.param(
            cordoned(lost=("gpu-0",)), cordoned("gpu-0"), [], id="the operator's own, which has another Event"
        ),
        pytest.param(
            record(cordons=300), record(cordons=420), [("DevicesCordoned", f"120 devices {ON_A} cordoned")], id="many"
        ),
        pytest.param(cordoned(), cordoned("gpu-0", is_observed=True), [], id="not possible: the kubelet serves it"),
        pytest.param(cordoned("gpu-0"), record(cordons=1), [], id="kept without its lists from now on"),
        pytest.param(
            cordoned(has_status=False),
            cordoned("gpu-0", has_status=False),
            [("DevicesCordoned", f"1 device (gpu-0) {ON_A} cordoned")],
            id="its agent has reported nothing",
        ),
    ],
)
def test_cordons(before: NodeDeviceRecord, after: NodeDeviceRecord, wanted: list[tuple[str, str]]) -> None:
    assert reported(before, after) == wanted


def test_an_event_that_waits_has_few_names() -> None:
    ids = frozenset(f"gpu-{number:02}" for number in range(80))
    by = frozenset(f"admin-{number:02}" for number in range(80))
    found = DeviceAggregate(GPU, "node-a", ids, became="cordoned", by=by).bounded()
    assert (len(found.by), found.sentence().partition(" by ")[2]) == (
        8,
        "admin-00, admin-01, admin-02, admin-03, admin-04 and 3 more",
    )


def test_an_event_of_few_devices_waits_as_it_is() -> None:
    ids, by = (frozenset(f"{number}" for number in range(count)) for count in (64, 80))
    found = DeviceAggregate(GPU, "node-a", ids, became="cordoned", by=by)
    assert found.bounded() == found


def test_cordons_that_are_there_at_a_start_are_no_transition() -> None:
    assert reported(None, cordoned("gpu-0")) == []


NOT_CONFIGURED = ("NotConfigured", f"{GPU} on node-a: its built-in plugin was taken out of the configuration")
# a container holds the first device, which nobody lists
ENDED = not_configured(
    allocations=(held("pod-a", "main", "gpu-0"),),
    allocated=1,
    total=1,
    devices={"gpu-0": DeviceRecord("Unhealthy", "NotConfigured", True, ())},
    listed=("gpu-0",),
)


@pytest.mark.parametrize("before", ["Running", "Stopped", "Gone"])
def test_what_is_not_configured_any_more_is_no_warning(before: str) -> None:
    old = record(endpoint=before, allocations=(held("pod-a", "main", "gpu-0"),))
    (event,) = transitions(old, ENDED)
    assert (event.type, event.reason, event.message) == ("Normal", *NOT_CONFIGURED)
    assert reported(ENDED, replace(ENDED, allocated=0, allocations=(), devices={}, listed=())) == []


def test_a_place_that_another_name_has_is_a_warning() -> None:
    (event,) = transitions(record(), not_configured(reason="PlaceTaken"))
    assert (event.type, event.reason) == ("Warning", "PlaceTaken")
    assert "another resource name has its place" in event.message


def test_it_comes_back_without_a_recovery_and_with_what_is_broken_then() -> None:
    runs = ("EndpointRunning", f"{GPU} on node-a: the device plugin runs again")
    assert reported(ENDED, record(allocations=ENDED.allocations)) == [runs]
    broken = [reason for reason, _ in reported(ENDED, record(broken=1))]
    assert broken == ["EndpointRunning", "DeviceUnhealthy"]


def test_devices_that_break_together_are_one_event() -> None:
    (event,) = reported(record(broken=1), record(broken=8))
    seven = "7 devices (gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 2 more)"
    assert event == ("DeviceUnhealthy", f"{seven} of {GPU} on node-a unhealthy (Xid)")
    assert reported(record(broken=8), record(broken=8)) == []


def test_recovered_is_what_is_listed_as_healthy_or_left_out_as_such() -> None:
    recovered = ("DeviceRecovered", f"1 device (gpu-0) of {GPU} on node-a healthy again")
    assert reported(record(broken=1), record()) == [recovered]
    assert reported(record(broken=1), record(listed=IDS[1:])) == []
    one_broken = record(broken=1, total=308, healthy=307, devices_omitted=300)
    assert reported(one_broken, record(listed=(), total=308, healthy=308, devices_omitted=308)) == [recovered]


def many(total: int, broken: Iterable[int], names: int = 1551) -> NodeDeviceRecord:
    """A resource of so many devices that its NodeDevice names just the first of the broken ones, and leaves out the rest."""
    broken = sorted(broken)
    named = [f"d{number:06d}" for number in broken[:names]]
    devices = {device_id: DeviceRecord("Unhealthy", "Xid", False, ()) for device_id in named}
    healthy, omitted = total - len(broken), total - len(named)
    return node_device(
        devices=devices, listed=tuple(named), total=total, healthy=healthy, available=healthy, devices_omitted=omitted
    )


NAMED = "d000000, d000001, d000002, d000003, d000004"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        pytest.param(
            many(6000, range(0)),
            many(6000, range(5000)),
            [f"5000 devices ({NAMED} and 4995 more) of {GPU} on node-a unhealthy (Xid)"],
            id="they break",
        ),
        pytest.param(
            many(6000, range(5000)),
            many(6000, range(1000, 5000)),
            [f"1000 devices of {GPU} on node-a healthy again"],
            id="some recover, and others are listed in their place",
        ),
        pytest.param(
            many(6000, range(5000)),
            many(6000, range(0)),
            [f"5000 devices ({NAMED} and 4995 more) of {GPU} on node-a healthy again"],
            id="all recover",
        ),
        pytest.param(
            many(6000, range(1000, 5000)),
            many(6000, range(5000)),
            [f"1000 devices of {GPU} on node-a unhealthy"],
            id="those break that push others out of the list",
        ),
        pytest.param(
            many(100_000, range(5000)),
            many(100_000, range(100_000)),
            [f"95000 devices of {GPU} on node-a unhealthy"],
            id="all others break, and none of them is listed",
        ),
        pytest.param(many(6000, range(5000)), many(1000, range(0)), [], id="the plugin lists none of the broken ones"),
        pytest.param(
            many(6000, range(5000)),
            many(5990, range(100, 5000)),
            [f"90 devices of {GPU} on node-a healthy again"],
            id="some recover while as many as ten broken ones are listed no more",
        ),
        pytest.param(
            many(6000, range(5000)), many(6000, range(5000), names=1600), [], id="more of the same are listed"
        ),
    ],
)
def test_of_many_devices_the_totals_count_and_not_what_the_list_has_room_for(
    before: NodeDeviceRecord, after: NodeDeviceRecord, wanted: list[str]
) -> None:
    assert [message for _, message in reported(before, after)] == wanted


@given(
    total=st.integers(1, 60),
    room=st.integers(0, 60),
    before=st.sets(st.integers(0, 59)),
    after=st.sets(st.integers(0, 59)),
)
def test_no_more_is_reported_than_what_happened(total: int, room: int, before: set[int], after: set[int]) -> None:
    """Whichever of the same devices are broken, before and after, and however few of them the list has room for."""
    before, after = ({number for number in found if number < total} for found in (before, after))
    all_broken, all_repaired = after - before, before - after
    counted = {"DeviceUnhealthy": 0, "DeviceRecovered": 0}
    for event in transitions(many(total, before, room), many(total, after, room)):
        assert isinstance(event.aggregate, DeviceAggregate)
        truly = all_broken if event.reason == "DeviceUnhealthy" else all_repaired
        assert event.aggregate.device_ids <= {f"d{number:06d}" for number in truly}
        counted[event.reason] = len(event.aggregate.device_ids) + event.aggregate.unnamed
    assert counted["DeviceUnhealthy"] <= len(all_broken)
    assert counted["DeviceRecovered"] <= len(all_repaired)
    assert counted["DeviceUnhealthy"] - counted["DeviceRecovered"] == len(all_broken) - len(all_repaired)


def test_a_pod_is_reported_of_the_devices_that_it_holds() -> None:
    holders = (
        held("pod-a", "init", "gpu-0"),
        held("pod-a", "main", "gpu-0", "gpu-1", "gpu-7"),
        held("pod-b", "main", "gpu-6"),
        held("pod-c", "main", "gpu-2", is_releasing=True),
        AllocationRecord("", "", "uid-x", "main", ("gpu-3",), 0, False),
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
    found = [event[0] for event in reported(record(endpoint=before), record(endpoint=after))]
    assert found == ([reason] if reason else [])


def test_a_plugin_that_stops_and_returns() -> None:
    """Meanwhile only the held device is listed, without a reason of its own."""
    holder: dict[str, Any] = {"allocations": (held("pod-a", "main", "gpu-7"),)}
    running = record(broken=3, total=8, healthy=5, **holder)
    of_held = {"gpu-7": DeviceRecord("Unhealthy", "", False, ())}
    numbers: dict[str, Any] = {"total": 8, "healthy": 0, "available": 0, "devices_omitted": 7}
    stopped = node_device(endpoint="Stopped", devices=of_held, listed=("gpu-7",), **numbers, **holder)
    assert reported(running, stopped)[1:] == [
        ("DeviceUnhealthy", f"5 devices (gpu-7 and 4 more) of {GPU} on node-a unhealthy (EndpointStopped)"),
        (
            "DeviceUnhealthy",
            f"1 device (gpu-7) of {GPU} on node-a unhealthy (EndpointStopped); held by this pod until it ends",
        ),
    ]
    assert reported(stopped, running)[1:] == [
        ("DeviceRecovered", f"5 devices (gpu-7 and 4 more) of {GPU} on node-a healthy again"),
        ("DeviceRecovered", f"1 device (gpu-7) of {GPU} on node-a healthy again"),
    ]


def test_a_waiting_pod_is_reported_once_per_reason() -> None:
    none, few = record(), record(waiting=(waiting("NotEnoughDevices", "0 of 2"),))
    (event,) = transitions(none, few)
    assert (event.about.kind, event.about.name, event.about.uid, event.on_node) == ("Pod", "pod-a", "uid-a", "node-a")
    assert event.message == f"container main waits for {GPU} on node-a: NotEnoughDevices (0 of 2)"
    (event,) = transitions(
        none,
        record(waiting=(Waiting("uid-a", "main", "AllocateFailed", "default", "pod-a", "delete the pod", final=True),)),
    )
    assert event.message == f"container main cannot get {GPU} on node-a: AllocateFailed (delete the pod)"
    assert reported(few, record(waiting=(waiting("NotEnoughDevices", "1 of 2"),))) == []
    assert len(reported(few, record(waiting=(waiting("AllocateFailed"), waiting("NotEnoughDevices"))))) == 1


def not_injected(kind: str, container: str = "main", **fields: Any) -> dict[str, Any]:
    """Fields of a record in which that container runs without its devices, recorded as its own or not."""
    if kind == "held":
        return {"allocations": (held("pod-a", container, "gpu-0", not_injected=True, **fields),)}
    return {"waiting": (Waiting("uid-pod-a", container, "NotEnoughDevices", "default", "pod-a", "", True),)}


@pytest.mark.parametrize("kind", ["held", "waiting"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(record(), id="unknown"),
        pytest.param(record(allocations=(held("pod-a", "main", "gpu-0"),)), id="held"),
        pytest.param(record(waiting=(Waiting("uid-pod-a", "main", "AnyReason", "default", "pod-a"),)), id="waits"),
        pytest.param(record(has_status=False, endpoint=None), id="first word of the resource"),
    ],
)
def test_a_container_without_its_devices_is_reported_on_its_pod(before: NodeDeviceRecord, kind: str) -> None:
    events = [event for event in transitions(before, record(**not_injected(kind))) if event.reason != "DevicesWaiting"]
    (event,) = events
    assert (event.reason, event.type) == ("DevicesNotInjected", "Warning")
    assert (event.about.kind, event.about.name) == ("Pod", "pod-a")
    assert (event.about.uid, event.on_node) == ("uid-pod-a", "node-a")
    assert event.message == (
        f"container main runs without the {GPU} that it requested on node-a; delete the pod so that a new one gets it"
    )


def test_it_is_reported_at_each_transition_and_at_no_other_change() -> None:
    held_so, waits_so = record(**not_injected("held")), record(**not_injected("waiting"))
    assert [reason for reason, _ in reported(waits_so, held_so)] == []
    assert [reason for reason, _ in reported(held_so, replace(held_so, cordoned=1))] == []
    well = record(allocations=(held("pod-a", "main", "gpu-0"),))
    assert reported(held_so, well) == []
    assert [reason for reason, _ in reported(well, held_so)] == ["DevicesNotInjected"]
    both = replace(held_so, waiting=not_injected("waiting", "side")["waiting"])
    again = [message for reason, message in reported(held_so, both) if reason == "DevicesNotInjected"]
    assert [message.partition(" runs")[0] for message in again] == ["container side"]


@pytest.mark.parametrize(
    "allocation",
    [
        pytest.param(held("pod-a", "main", "gpu-0", is_releasing=True, not_injected=True), id="a pod that is over"),
        pytest.param(
            AllocationRecord("", "", "uid", "main", ("gpu-0",), 0, False, True), id="a pod nobody knows by name"
        ),
    ],
)
def test_nothing_is_reported_of(allocation: AllocationRecord) -> None:
    assert reported(record(), record(allocations=(allocation,))) == []


def registered(reason: str, message: str = "", **fields: Any) -> NodeDeviceRecord:
    return record(conditions={"Registered": StoredCondition("True", reason, message, "then", 1)}, **fields)


@pytest.mark.parametrize(
    "reason",
    ["DevicesRefused", "CheckpointUnreadable", "CheckpointNotWritten", "SeveralPlugins", "CordonedDeviceUnknown"],
)
@pytest.mark.parametrize("before", [registered("EndpointRunning"), record(has_status=False, conditions={})])
def test_what_somebody_has_to_repair_is_reported_once(before: NodeDeviceRecord, reason: str) -> None:
    now = registered(reason, "gpu-0 twice")
    (event,) = transitions(before, now)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", reason)
    assert event.message == f"{GPU} on node-a: gpu-0 twice"
    assert reported(now, registered(reason, "gpu-0 and gpu-1 twice")) == []
    assert reported(now, registered("EndpointRunning")) == []


def test_who_edits_a_status_is_reported_of_once() -> None:
    edited = record(edited_by=frozenset({"kubectl-edit"}))
    (event,) = transitions(record(), edited)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", "StatusEdited")
    assert event.message == (
        f"{GPU} on node-a: kubectl-edit changed the status, which only agent and operator write; "
        "each restores its own fields, the agent once it runs"
    )
    assert reported(edited, edited) == []
    by_hand = record(has_status=False, edited_by=frozenset({"kubectl-edit"}))
    (message,) = (message for _, message in reported(record(has_status=False), by_hand))
    assert message.endswith(f"; no agent has reported {GPU} there, so values written by other clients are ignored")
    assert reported(edited, record()) == []


def test_some() -> None:
    assert some(["a"]) == "a"
    assert some(list("abcdef")) == "a, b, c, d, e and 1 more"
