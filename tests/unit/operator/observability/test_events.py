"""Which changes of a NodeDevice are reported, and that each is reported once."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord, NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.operator_model import GPU, not_configured, waits
from tests.unit.operator.observability.changes import held, record, reported, waiting


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


@pytest.mark.parametrize(
    ("before", "now", "kind", "message"),
    [
        ("Running", "Gone", "Warning", f"{GPU} on node-a: its DRA driver has no ResourceSlice of this node any more"),
        ("Gone", "Running", "Normal", f"{GPU} on node-a: its DRA driver has ResourceSlices of this node again"),
    ],
)
def test_what_a_dra_driver_offers_comes_and_goes_without_a_plugin(
    before: str, now: str, kind: str, message: str
) -> None:
    dra = names.SERVED_BY_DRA
    (event,) = transitions(record(endpoint=before, served_by=dra), record(endpoint=now, served_by=dra))
    assert (event.type, event.message) == (kind, message)
    assert reported(record(endpoint=now, served_by=dra), record(endpoint=now, served_by=dra)) == []


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


def test_it_comes_back_without_a_recovery_and_with_what_is_broken_then() -> None:
    runs = ("EndpointRunning", f"{GPU} on node-a: the device plugin runs again")
    assert reported(ENDED, record(allocations=ENDED.allocations)) == [runs]
    broken = [reason for reason, _ in reported(ENDED, record(broken=1))]
    assert broken == ["EndpointRunning", "DeviceUnhealthy"]


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


def test_a_waiting_pod_is_reported_once_per_reason() -> None:
    none, few = record(), record(waiting=(waiting("NotEnoughDevices", "0 of 2"),))
    (event,) = transitions(none, few)
    assert (event.about.kind, event.about.name, event.about.uid, event.on_node) == ("Pod", "pod-a", "uid-a", "node-a")
    assert event.message == f"container main is pending without {GPU} on node-a: NotEnoughDevices (0 of 2)"
    (event,) = transitions(
        none,
        record(waiting=(waits("uid-a", "main", "AllocateFailed", "default", "pod-a", "delete the pod", final=True),)),
    )
    assert event.message == f"container main cannot get {GPU} on node-a: AllocateFailed (delete the pod)"
    (event,) = transitions(none, record(waiting=(waiting("NotEnoughDevices", ""),)))
    assert event.message == f"container main is pending without {GPU} on node-a: NotEnoughDevices"
    assert reported(few, record(waiting=(waiting("NotEnoughDevices", "1 of 2"),))) == []
    assert len(reported(few, record(waiting=(waiting("AllocateFailed"), waiting("NotEnoughDevices"))))) == 1


def not_injected(kind: str, container: str = "main", **fields: Any) -> dict[str, Any]:
    """Fields of a record in which that container runs without its devices, recorded as its own or not."""
    if kind == "held":
        return {"allocations": (held("pod-a", container, "gpu-0", not_injected=True, **fields),)}
    return {"waiting": (waits("uid-pod-a", container, "NotEnoughDevices", "default", "pod-a", not_injected=True),)}


@pytest.mark.parametrize("kind", ["held", "waiting"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(record(), id="unknown"),
        pytest.param(record(allocations=(held("pod-a", "main", "gpu-0"),)), id="held"),
        pytest.param(record(waiting=(waits("uid-pod-a", "main", "AnyReason", "default", "pod-a"),)), id="waits"),
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


def named(namespace: str, name: str) -> AllocationRecord:
    return AllocationRecord(namespace, name, "uid", "main", ("gpu-0",), 0, False, True)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"allocations": (held("pod-a", "main", "gpu-0", is_releasing=True, not_injected=True),)}, id="over"
        ),
        pytest.param({"allocations": (named("default", ""),)}, id="held, without a name"),
        pytest.param({"allocations": (named("", "pod-a"),)}, id="held, of no namespace"),
        pytest.param({"waiting": (waits("uid-a", "main", "NotEnoughDevices", "default", ""),)}, id="without a name"),
        pytest.param({"waiting": (waits("uid-a", "main", "NotEnoughDevices", "", "pod-a"),)}, id="of no namespace"),
    ],
)
def test_nothing_is_reported_on_a_pod_that_cannot_be_found(fields: dict[str, Any]) -> None:
    assert reported(record(), record(**fields)) == []


def registered(reason: str, message: str = "", **fields: Any) -> NodeDeviceRecord:
    return record(conditions={"Registered": StoredCondition("True", reason, message, "then", 1)}, **fields)


@pytest.mark.parametrize(
    "reason",
    [
        *("DevicesRefused", "CheckpointUnreadable", "CheckpointNotWritten", "SeveralPlugins"),
        *("CordonedDeviceUnknown", "CordonNotPossible", "PoolIncomplete"),
    ],
)
@pytest.mark.parametrize("before", [registered("EndpointRunning"), record(has_status=False, conditions={})])
def test_what_somebody_has_to_repair_is_reported_once(before: NodeDeviceRecord, reason: str) -> None:
    now = registered(reason, "gpu-0 twice")
    (event,) = transitions(before, now)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", reason)
    assert event.message == f"{GPU} on node-a: gpu-0 twice"
    assert reported(now, registered(reason, "gpu-0 and gpu-1 twice")) == []
    assert reported(now, registered("EndpointRunning")) == []


@pytest.mark.parametrize("before", [record(), record(has_status=False, conditions={})])
def test_what_is_offered_twice_is_reported_at_its_beginning_and_its_end(before: NodeDeviceRecord) -> None:
    def twice(message: str) -> NodeDeviceRecord:
        return record(conditions={"OfferedTwice": StoredCondition("True", "OfferedTwice", message, "then", 1)})

    now = twice("by another; pods hold none")
    (event,) = transitions(before, now)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", "Warning", "OfferedTwice")
    assert event.message == f"{GPU} on node-a: by another; pods hold none"
    assert reported(now, twice("by another; pods hold one")) == []
    (event,) = transitions(now, record())
    assert (event.type, event.reason) == ("Normal", "OfferedOnce")
    assert reported(record(), record()) == []


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
