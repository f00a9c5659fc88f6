"""Which changes of a NodeDevice are reported, and that each is reported once."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.nodedevice import Waiting
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.operator_model import GPU, not_configured, waits
from tests.unit.operator.objects.records import held
from tests.unit.operator.observability.changes import record, reported, waiting

DRA = names.SERVED_BY_DRA
REPORTED_NOTHING = record(has_status=False, conditions={})
EDITED = frozenset({"kubectl-edit"})
UNREPORTED = record(has_status=False)
HELD = record(allocations=(held("gpu-0"),))
# a container holds the first device, which nobody lists
MISSING = {"gpu-0": DeviceRecord("Unhealthy", "NotConfigured", True, ())}
ENDED = not_configured(allocations=HELD.allocations, allocated=1, total=1, devices=MISSING, listed=("gpu-0",))
TAKEN = not_configured(reason="PlaceTaken")


def registered(reason: str, message: str = "") -> NodeDeviceRecord:
    return record(conditions={"Registered": StoredCondition("True", reason, message, "then", 1)})


def twice(message: str) -> NodeDeviceRecord:
    return record(conditions={"OfferedTwice": StoredCondition("True", "OfferedTwice", message, "then", 1)})


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(None, id="never seen"),
        pytest.param(UNREPORTED, id="reported nothing"),
        pytest.param(replace(record(), uid="another"), id="another object"),
    ],
)
def test_first_sight_is_no_transition(old: NodeDeviceRecord | None) -> None:
    assert reported(old, record(broken=2, endpoint="Stopped", waiting=(waiting("NotEnoughDevices"),))) == []


def warning(name: str, before: NodeDeviceRecord, after: NodeDeviceRecord, reason: str, message: str = "") -> Any:
    return pytest.param(before, after, "Warning", reason, message, id=name)


def normal(name: str, before: NodeDeviceRecord, after: NodeDeviceRecord, reason: str, message: str = "") -> Any:
    return pytest.param(before, after, "Normal", reason, message, id=name)


SLICES, NONE = record(served_by=DRA), record(served_by=DRA, endpoint="Gone")
BY_HAND = (
    "kubectl-edit changed the status, which only agent and operator write; "
    "each restores its own fields, the agent once it runs"
)
IGNORED = f"no agent has reported {GPU} there, so values written by other clients are ignored"


@pytest.mark.parametrize(
    ("before", "after", "kind", "reason", "message"),
    [
        warning("stopped", record(), record(endpoint="Stopped"), "EndpointStopped"),
        warning("gone", record(endpoint="Stopped"), record(endpoint="Gone"), "EndpointGone"),
        normal("back", record(endpoint="Gone"), record(), "EndpointRunning", "the device plugin runs again"),
        warning("no driver", SLICES, NONE, "EndpointGone", "its DRA driver has no ResourceSlice of this node any more"),
        normal("a driver", NONE, SLICES, "EndpointRunning", "its DRA driver has ResourceSlices of this node again"),
        normal("ended", HELD, ENDED, "NotConfigured", "its built-in plugin was taken out of the configuration"),
        warning("its place is taken", record(), TAKEN, "PlaceTaken", "another resource name has its place"),
        normal("configured again, no recovery", ENDED, HELD, "EndpointRunning", "the device plugin runs again"),
        warning("offered twice", record(), twice("by another; one"), "OfferedTwice", "by another; one"),
        warning("offered twice at first", REPORTED_NOTHING, twice("by another"), "OfferedTwice", "by another"),
        normal("offered once again", twice("by another"), record(), "OfferedOnce"),
        warning("edited", record(), record(edited_by=EDITED), "StatusEdited", BY_HAND),
        warning("without an agent", UNREPORTED, replace(UNREPORTED, edited_by=EDITED), "StatusEdited", IGNORED),
        *(
            warning(f"{reason}{when}", before, registered(reason, "gpu-0 twice"), reason, "gpu-0 twice")
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
        pytest.param(ENDED, replace(ENDED, allocated=0, allocations=(), devices={}, listed=()), id="freed"),
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


def waits_without(container: str) -> Waiting:
    return waits("uid-pod-a", container, "NotEnoughDevices", "default", "pod-a", not_injected=True)


# a container runs without its devices, recorded as its own or not
HELD_SO = record(allocations=(held("gpu-0", not_injected=True),))
WAITS_SO = record(waiting=(waits_without("main"),))


@pytest.mark.parametrize("after", [HELD_SO, WAITS_SO], ids=["held", "waiting"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(HELD, id="held"),
        pytest.param(record(waiting=(waits("uid-pod-a", "main", "AnyReason", "default", "pod-a"),)), id="waits"),
        pytest.param(record(has_status=False, endpoint=None), id="first word of the resource"),
    ],
)
def test_a_container_without_devices_is_reported_on_its_pod(before: NodeDeviceRecord, after: NodeDeviceRecord) -> None:
    (event,) = [event for event in transitions(before, after) if event.reason != "DevicesWaiting"]
    assert (event.reason, event.type) == ("DevicesNotInjected", "Warning")
    assert (event.about.kind, event.about.name) == ("Pod", "pod-a")
    assert (event.about.uid, event.on_node) == ("uid-pod-a", "node-a")
    assert event.message == (
        f"container main runs without the {GPU} that it requested on node-a; delete the pod so that a new one gets it"
    )


def test_it_is_reported_at_each_transition_and_at_no_other_change() -> None:
    for before, after in ((WAITS_SO, HELD_SO), (HELD_SO, replace(HELD_SO, cordoned=1)), (HELD_SO, HELD)):
        assert reported(before, after) == []
    both = replace(HELD_SO, waiting=(waits_without("side"),))
    again = [message for reason, message in reported(HELD_SO, both) if reason == "DevicesNotInjected"]
    assert [message.partition(" runs")[0] for message in again] == ["container side"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"allocations": (replace(HELD_SO.allocations[0], is_releasing=True),)}, id="over"),
        pytest.param({"allocations": (replace(HELD_SO.allocations[0], name=""),)}, id="held, without a name"),
        pytest.param({"allocations": (replace(HELD_SO.allocations[0], namespace=""),)}, id="held, of no namespace"),
        pytest.param({"waiting": (waits("uid-a", "main", "NotEnoughDevices", "default", ""),)}, id="without a name"),
        pytest.param({"waiting": (waits("uid-a", "main", "NotEnoughDevices", "", "pod-a"),)}, id="of no namespace"),
    ],
)
def test_nothing_is_reported_on_a_pod_that_cannot_be_found(fields: dict[str, Any]) -> None:
    assert reported(record(), record(**fields)) == []
