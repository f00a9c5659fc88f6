"""Which changes of a NodeDevice are reported, and that each is reported once."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord, NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.operator_model import GPU, not_configured, waits
from tests.unit.operator.observability.changes import held, record, reported, waiting

DRA = names.SERVED_BY_DRA
REPORTED_NOTHING = record(has_status=False, conditions={})
EDITED = frozenset({"kubectl-edit"})
# a container holds the first device, which nobody lists
ENDED = not_configured(
    allocations=(held("pod-a", "main", "gpu-0"),),
    allocated=1,
    total=1,
    devices={"gpu-0": DeviceRecord("Unhealthy", "NotConfigured", True, ())},
    listed=("gpu-0",),
)


def registered(reason: str, message: str = "") -> NodeDeviceRecord:
    return record(conditions={"Registered": StoredCondition("True", reason, message, "then", 1)})


def twice(message: str) -> NodeDeviceRecord:
    return record(conditions={"OfferedTwice": StoredCondition("True", "OfferedTwice", message, "then", 1)})


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
    ("before", "after", "kind", "reason", "message"),
    [
        pytest.param(record(), record(endpoint="Stopped"), "Warning", "EndpointStopped", "", id="stopped"),
        pytest.param(record(endpoint="Stopped"), record(endpoint="Gone"), "Warning", "EndpointGone", "", id="gone"),
        pytest.param(
            record(endpoint="Gone"), record(), "Normal", "EndpointRunning", "the device plugin runs again", id="back"
        ),
        pytest.param(
            record(served_by=DRA),
            record(served_by=DRA, endpoint="Gone"),
            "Warning",
            "EndpointGone",
            "its DRA driver has no ResourceSlice of this node any more",
            id="a DRA driver is gone",
        ),
        pytest.param(
            record(served_by=DRA, endpoint="Gone"),
            record(served_by=DRA),
            "Normal",
            "EndpointRunning",
            "its DRA driver has ResourceSlices of this node again",
            id="a DRA driver is back",
        ),
        pytest.param(
            record(allocations=ENDED.allocations),
            ENDED,
            "Normal",
            "NotConfigured",
            "its built-in plugin was taken out of the configuration",
            id="not configured any more",
        ),
        pytest.param(
            record(),
            not_configured(reason="PlaceTaken"),
            "Warning",
            "PlaceTaken",
            "another resource name has its place",
            id="its place is taken",
        ),
        pytest.param(
            ENDED,
            record(allocations=ENDED.allocations),
            "Normal",
            "EndpointRunning",
            "the device plugin runs again",
            id="configured again, and no recovery",
        ),
        pytest.param(
            record(), twice("by another; one"), "Warning", "OfferedTwice", "by another; one", id="offered twice"
        ),
        pytest.param(
            REPORTED_NOTHING, twice("by another"), "Warning", "OfferedTwice", "by another", id="offered twice at first"
        ),
        pytest.param(twice("by another"), record(), "Normal", "OfferedOnce", "", id="offered once again"),
        pytest.param(
            record(),
            record(edited_by=EDITED),
            "Warning",
            "StatusEdited",
            "kubectl-edit changed the status, which only agent and operator write; "
            "each restores its own fields, the agent once it runs",
            id="edited",
        ),
        pytest.param(
            record(has_status=False),
            record(has_status=False, edited_by=EDITED),
            "Warning",
            "StatusEdited",
            f"no agent has reported {GPU} there, so values written by other clients are ignored",
            id="written without an agent",
        ),
        *(
            pytest.param(
                before, registered(reason, "gpu-0 twice"), "Warning", reason, "gpu-0 twice", id=f"{reason}{when}"
            )
            for before, when in ((registered("EndpointRunning"), ""), (REPORTED_NOTHING, " at first"))
            for reason in (
                *("DevicesRefused", "CheckpointUnreadable", "CheckpointNotWritten", "SeveralPlugins"),
                *("CordonedDeviceUnknown", "CordonNotPossible", "PoolIncomplete"),
            )
        ),
    ],
)
def test_a_change_is_one_event(
    before: NodeDeviceRecord, after: NodeDeviceRecord, kind: str, reason: str, message: str
) -> None:
    (event,) = transitions(before, after)
    assert (event.about.kind, event.type, event.reason) == ("NodeDevice", kind, reason)
    assert event.message.startswith(f"{GPU} on node-a: ")
    assert message in event.message
    assert reported(after, after) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(record(endpoint=None), record(), id="the first word of its plugin"),
        pytest.param(record(), record(endpoint=None), id="no word of its plugin"),
        pytest.param(
            ENDED, replace(ENDED, allocated=0, allocations=(), devices={}, listed=()), id="freed after its end"
        ),
        pytest.param(registered("DevicesRefused", "a"), registered("DevicesRefused", "a and b"), id="other words"),
        pytest.param(registered("DevicesRefused", "a"), registered("EndpointRunning"), id="repaired"),
        pytest.param(twice("pods hold none"), twice("pods hold one"), id="other words of an offer"),
        pytest.param(record(edited_by=EDITED), record(), id="edited no more"),
    ],
)
def test_no_event(before: NodeDeviceRecord, after: NodeDeviceRecord) -> None:
    assert reported(before, after) == []


def test_devices_that_are_broken_when_it_comes_back_are_reported() -> None:
    broken = [reason for reason, _ in reported(ENDED, record(broken=1))]
    assert broken == ["EndpointRunning", "DeviceUnhealthy"]


def test_a_waiting_pod_is_reported_once_per_reason() -> None:
    none, few = record(), record(waiting=(waiting("NotEnoughDevices", "0 of 2"),))
    (event,) = transitions(none, few)
    assert (event.about.kind, event.about.name, event.about.uid, event.on_node) == ("Pod", "pod-a", "uid-a", "node-a")
    assert event.message == f"container main is pending without {GPU} on node-a: NotEnoughDevices (0 of 2)"
    final = waits("uid-a", "main", "AllocateFailed", "default", "pod-a", "delete the pod", final=True)
    (event,) = transitions(none, record(waiting=(final,)))
    assert event.message == f"container main cannot get {GPU} on node-a: AllocateFailed (delete the pod)"
    assert reported(few, record(waiting=(waiting("NotEnoughDevices", "1 of 2"),))) == []
    assert len(reported(few, record(waiting=(waiting("AllocateFailed"), waiting("NotEnoughDevices"))))) == 1


def not_injected(kind: str, container: str = "main") -> dict[str, Any]:
    """Fields of a record in which that container runs without its devices, recorded as its own or not."""
    if kind == "held":
        return {"allocations": (held("pod-a", container, "gpu-0", not_injected=True),)}
    return {"waiting": (waits("uid-pod-a", container, "NotEnoughDevices", "default", "pod-a", not_injected=True),)}


@pytest.mark.parametrize("kind", ["held", "waiting"])
@pytest.mark.parametrize(
    "before",
    [
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
    assert reported(held_so, record(allocations=(held("pod-a", "main", "gpu-0"),))) == []
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
