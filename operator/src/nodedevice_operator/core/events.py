"""Kubernetes Events: what is told, on which object, and when a change is worth one.

An Event tells a transition. The first sight of an object is none: what was there before the operator started has been told. Nor
is an agent's first word of a resource, but for what somebody has to mend, and for containers that run without theirs: they started
before the resource was known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.core.records import Allocation, NodeDeviceRecord, NodeRecord, Waiting

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# Reasons of a condition Registered that is True: the plugin serves, and somebody has to look.
TO_BE_MENDED: Final = frozenset({names.Reason.DEVICES_REFUSED, names.Reason.CHECKPOINT_UNREADABLE})

# How many device IDs a sentence names; the rest is a number.
_NAMED_DEVICES: Final = 5


class EventReason:
    """Reasons of the operator's own Events; the others come from the conditions they tell of."""

    DEVICES_ALLOCATED: Final = "DevicesAllocated"
    DEVICES_WAITING: Final = "DevicesWaiting"
    DEVICE_UNHEALTHY: Final = "DeviceUnhealthy"
    DEVICE_RECOVERED: Final = "DeviceRecovered"
    ALLOCATION_REFUSED: Final = "AllocationRefused"
    POD_EVICTED: Final = "DeviceEviction"
    EVICTION_REFUSED: Final = "DeviceEvictionRefused"
    CAPACITY_REPAIRED: Final = "CapacityRepaired"
    CAPACITY_CONFLICT: Final = "CapacityConflict"
    CAPACITY_CONFLICT_ENDED: Final = "CapacityConflictEnded"
    CONTRADICTION: Final = "StatusContradictsItself"
    EDITED: Final = "StatusEdited"
    REGISTRATION_REFUSED: Final = "RegistrationRefused"


@dataclass(frozen=True, slots=True)
class About:
    """The object an Event is on. Cluster-scoped objects have namespace ""."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Devices of one resource on one node to which the same happened; `reasons` are theirs, as far as it is bad news.

    of_pod: it is for the pod that holds them, all of them.
    """

    resource: str
    node: str
    device_ids: frozenset[str]
    reasons: frozenset[str] = frozenset()
    of_pod: bool = False

    def sentence(self) -> str:
        """How many and some of them, such as `2 devices (gpu-0, gpu-1) of vendor.com/gpu on node-a unhealthy (Overheated)`."""
        what = f"{_devices(sorted(self.device_ids))} of {self.resource} on {self.node}"
        if not self.reasons:
            return f"{what} healthy again"
        kept = "; held by this pod until it ends" if self.of_pod else ""
        return f"{what} unhealthy ({', '.join(sorted(self.reasons))}){kept}"


@dataclass(frozen=True, slots=True)
class Event:
    """One Event to post. `on_node` asks that the pod it is about be looked up first: it must run there.

    tally: what it counts, so that another of the same kind, a moment later, is one with it. is_standing: it tells what goes on,
    and whoever begins anew comes upon it again; it is not repeated while there is such an Event.
    """

    about: About
    type: str
    reason: str
    message: str
    on_node: str | None = None
    tally: Tally | None = None
    is_standing: bool = False


def about_node(node: NodeRecord) -> About:
    return About("v1", "Node", "", node.name, node.uid)


def about_node_device(record: NodeDeviceRecord) -> About:
    return About(names.API_VERSION, names.NODE_DEVICE, "", record.name, record.uid)


def about_pod(namespace: str, name: str, uid: str) -> About:
    return About("v1", "Pod", namespace, name, uid)


def transitions(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> tuple[Event, ...]:
    """Events that tell how `new` differs from `old`; none where `old` is another object, or nothing is known of it."""
    if old is None or old.uid != new.uid or not new.has_status:
        return ()
    of_any_word = (*_to_be_mended(old, new), *_running_without(old, new), *_edited(old, new))
    return (
        (*_endpoint(old, new), *_health(old, new), *_waiting(old, new), *of_any_word) if old.has_status else of_any_word
    )


def merged(first: Event, second: Event) -> Event:
    """One Event in place of two that count the same on the same object."""
    assert first.tally is not None
    assert second.tally is not None
    tally = replace(
        first.tally,
        device_ids=first.tally.device_ids | second.tally.device_ids,
        reasons=first.tally.reasons | second.tally.reasons,
    )
    return replace(second, message=tally.sentence(), tally=tally)


def some(device_ids: list[str]) -> str:
    """A few of the IDs and how many more, such as `gpu-0, gpu-1 and 6 more`."""
    named = ", ".join(device_ids[:_NAMED_DEVICES])
    more = len(device_ids) - _NAMED_DEVICES
    return f"{named} and {more} more" if more > 0 else named


def _endpoint(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    if old.endpoint == new.endpoint or old.endpoint is None:
        return
    told = {
        "Running": (NORMAL, names.Reason.ENDPOINT_RUNNING, "the device plugin runs again"),
        "Stopped": (WARNING, names.Reason.ENDPOINT_STOPPED, "the device plugin has stopped; its devices stay for now"),
        "Gone": (WARNING, names.Reason.ENDPOINT_GONE, "the device plugin did not come back in time"),
    }.get(new.endpoint or "")
    if told:
        kind, reason, sentence = told
        yield Event(about_node_device(new), kind, reason, f"{new.resource} on {new.node}: {sentence}")


def _to_be_mended(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """What the agent says of a plugin that serves, or of itself, that somebody has to mend."""
    told, now = (record.conditions.get(names.Condition.REGISTERED) for record in (old, new))
    if now is None or now.reason not in TO_BE_MENDED or (told is not None and told.reason == now.reason):
        return
    yield Event(about_node_device(new), WARNING, now.reason, f"{new.resource} on {new.node}: {now.message}")


def _edited(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    editors = ", ".join(sorted(new.edited_by - old.edited_by))
    if editors:
        rest = "changed the status, which the agent and the operator write; they put it right"
        message = f"{new.resource} on {new.node}: {editors} {rest}"
        yield Event(about_node_device(new), WARNING, EventReason.EDITED, message)


def _health(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    broken = new.unhealthy() - old.unhealthy()
    # a device that is no longer listed has not recovered, unless the list leaves out the healthy ones
    listed = frozenset(new.listed)
    mended = frozenset(i for i in old.unhealthy() - new.unhealthy() if i in listed or new.devices_omitted)
    for kind, reason, changed in (
        (WARNING, EventReason.DEVICE_UNHEALTHY, broken),
        (NORMAL, EventReason.DEVICE_RECOVERED, mended),
    ):
        if changed:
            tally = Tally(new.resource, new.node, changed, _reasons(new, changed & broken))
            yield Event(about_node_device(new), kind, reason, tally.sentence(), tally=tally)
            yield from _of_pods(new, kind, reason, changed)


def _of_pods(new: NodeDeviceRecord, kind: str, reason: str, changed: frozenset[str]) -> Iterator[Event]:
    """The same for each pod that holds some of `changed`: whoever looks at a pod may know nothing of NodeDevices."""
    held: dict[About, frozenset[str]] = {}
    for allocation in new.allocations:
        if allocation.namespace and allocation.name and not allocation.is_releasing:
            pod = about_pod(allocation.namespace, allocation.name, allocation.pod_uid)
            held[pod] = held.get(pod, frozenset()) | (changed & frozenset(allocation.device_ids))
    for pod, ids in held.items():
        if ids:
            reasons = _reasons(new, ids) if kind == WARNING else frozenset()
            tally = Tally(new.resource, new.node, ids, reasons, of_pod=True)
            yield Event(pod, kind, reason, tally.sentence(), on_node=new.node, tally=tally)


def _reasons(record: NodeDeviceRecord, broken: frozenset[str]) -> frozenset[str]:
    return frozenset(record.devices[device_id].reason or names.Reason.REPORTED_UNHEALTHY for device_id in broken)


def _waiting(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    told = {_transition(waiting) for waiting in old.waiting}
    for waiting in new.waiting:
        if waiting.namespace and waiting.name and _transition(waiting) not in told:
            about = about_pod(waiting.namespace, waiting.name, waiting.pod_uid)
            why = f" ({waiting.message})" if waiting.message else ""
            message = f"container {waiting.container} waits for {new.resource} on {new.node}: {waiting.reason}{why}"
            yield Event(about, WARNING, EventReason.DEVICES_WAITING, message, on_node=new.node)


def _transition(waiting: Waiting) -> tuple[str, str, str]:
    # the message may carry numbers that move while the reason stays
    return waiting.pod_uid, waiting.container, waiting.reason


def _running_without(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    before, now = _without(old), _without(new)
    for pod, container in sorted(now.keys() - before.keys()):
        about = now[pod, container]
        message = (
            f"container {container} runs without the {new.resource} that it asked for on {new.node}; "
            "delete the pod, so that it starts anew and gets it"
        )
        yield Event(about, WARNING, names.Reason.RUNS_WITHOUT, message, on_node=new.node)


def _without(record: NodeDeviceRecord) -> dict[tuple[str, str], About]:
    """Pods of containers that run without theirs, by pod UID and container, whether devices are recorded as theirs or not."""
    entries: list[Allocation | Waiting] = [held for held in record.allocations if not held.is_releasing]
    entries += record.waiting
    return {
        (entry.pod_uid, entry.container): about_pod(entry.namespace, entry.name, entry.pod_uid)
        for entry in entries
        if entry.runs_without and entry.namespace and entry.name
    }


def _devices(device_ids: list[str]) -> str:
    noun = "device" if len(device_ids) == 1 else "devices"
    return f"{len(device_ids)} {noun} ({some(device_ids)})"
