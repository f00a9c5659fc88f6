"""Kubernetes Events: what is told, on which object, and when a change is worth one.

An Event tells a transition. The first sight of an object is none: what was there before the operator started has been told. Nor
is an agent's first word of a resource, but for what somebody has to mend, and for containers that run without theirs: they started
before the resource was known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.events.aggregate import DeviceAggregate
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import Allocation, NodeDeviceRecord, Waiting

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# Reasons of a condition Registered that is True: the plugin serves, and somebody has to look.
NEEDS_ATTENTION: Final = frozenset({names.Reason.DEVICES_REFUSED, names.Reason.CHECKPOINT_UNREADABLE})


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


# What takes back what the other one told.
OPPOSITES: Final = {
    EventReason.DEVICE_UNHEALTHY: EventReason.DEVICE_RECOVERED,
    EventReason.DEVICE_RECOVERED: EventReason.DEVICE_UNHEALTHY,
}


@dataclass(frozen=True, slots=True)
class About:
    """The object an Event is on. Cluster-scoped objects have namespace ""."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """One Event to post. `on_node` asks that the pod it is about be looked up first: it must run there.

    aggregate: what it counts, so that another of the same kind, a moment later, is one with it. is_ongoing: it tells what goes on,
    and whoever begins anew comes upon it again; it is not repeated while there is such an Event.
    """

    about: About
    type: str
    reason: str
    message: str
    on_node: str | None = None
    aggregate: DeviceAggregate | None = None
    is_ongoing: bool = False


def about_node(node: NodeRecord) -> About:
    return About("v1", "Node", "", node.name, node.uid)


def about_node_device(record: NodeDeviceRecord) -> About:
    return About(names.API_VERSION, names.NODE_DEVICE, "", record.name, record.uid)


def about_pod(namespace: str, name: str, uid: str) -> About:
    return About("v1", "Pod", namespace, name, uid)


def transitions(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> tuple[Event, ...]:
    """Events that tell how `new` differs from `old`; none where `old` is another object, or nothing is known of it."""
    if old is None or old.uid != new.uid:
        return ()
    if not new.has_status:
        return tuple(_edited(old, new))
    of_any_word = (*_needs_attention(old, new), *_running_without(old, new), *_edited(old, new))
    return (
        (*_endpoint(old, new), *_health(old, new), *_waiting(old, new), *of_any_word) if old.has_status else of_any_word
    )


def merged(first: Event, second: Event) -> Event:
    """One Event in place of two that count the same on the same object."""
    assert first.aggregate is not None
    assert second.aggregate is not None
    aggregate = replace(
        first.aggregate,
        device_ids=first.aggregate.device_ids | second.aggregate.device_ids,
        reasons=first.aggregate.reasons | second.aggregate.reasons,
        unnamed=first.aggregate.unnamed + second.aggregate.unnamed,
    )
    return replace(second, message=aggregate.sentence(), aggregate=aggregate)


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


def _needs_attention(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """What the agent says of a plugin that serves, or of itself, that somebody has to mend."""
    told, now = (record.conditions.get(names.Condition.REGISTERED) for record in (old, new))
    if now is None or now.reason not in NEEDS_ATTENTION or (told is not None and told.reason == now.reason):
        return
    yield Event(about_node_device(new), WARNING, now.reason, f"{new.resource} on {new.node}: {now.message}")


def _edited(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    editors = ", ".join(sorted(new.edited_by - old.edited_by))
    if editors:
        rest = "each puts its own part right, the agent as soon as it runs"
        if not new.has_status:
            rest = f"no agent has told of {new.resource} there, and what others write of its devices counts for nothing"
        message = f"{new.resource} on {new.node}: {editors} changed the status, which the agent and the operator write; {rest}"
        yield Event(about_node_device(new), WARNING, EventReason.EDITED, message)


def _health(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    broken, mended = _broken(old, new), _mended(old, new)
    unnamed_broken, unnamed_mended = _unnamed(old, new, len(broken), len(mended))
    for kind, reason, changed, unnamed in (
        (WARNING, EventReason.DEVICE_UNHEALTHY, broken, unnamed_broken),
        (NORMAL, EventReason.DEVICE_RECOVERED, mended, unnamed_mended),
    ):
        if changed or unnamed:
            aggregate = DeviceAggregate(
                new.resource,
                new.node,
                changed,
                _reasons(new, changed & broken),
                unnamed=unnamed,
                is_recovery=kind == NORMAL,
            )
            yield Event(about_node_device(new), kind, reason, aggregate.sentence(), aggregate=aggregate)
            yield from _of_pods(new, kind, reason, changed)


def _broken(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Which are known to have broken. Where `old` left out broken ones, one that it did not list may have been one of them."""
    found = new.unhealthy() - old.unhealthy()
    return found & frozenset(old.listed) if old.unlisted_unhealthy else found


def _mended(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Which are known to have recovered. One that is no longer listed has not, unless the list leaves out just healthy ones."""
    found = old.unhealthy() - new.unhealthy()
    is_rest_healthy = new.devices_omitted and not new.unlisted_unhealthy and new.total >= old.total
    return found if is_rest_healthy else found & frozenset(new.listed)


def _unnamed(old: NodeDeviceRecord, new: NodeDeviceRecord, broken: int, mended: int) -> tuple[int, int]:
    """How many more must have broken, and recovered, by the totals: those are of all devices, whatever a list leaves out.

    broken, mended: how many are known by their IDs.
    """
    if not (old.devices_omitted or new.devices_omitted):
        return 0, 0
    more = (new.total - new.healthy) - (old.total - old.healthy) - (broken - mended)
    # broken ones that the plugin no longer lists have not recovered
    gone = max(old.total - new.total, 0)
    return max(more, 0), max(-more - gone, 0)


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
            aggregate = DeviceAggregate(new.resource, new.node, ids, reasons, of_pod=True, is_recovery=kind == NORMAL)
            yield Event(pod, kind, reason, aggregate.sentence(), on_node=new.node, aggregate=aggregate)


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
        yield Event(about, WARNING, names.Reason.DEVICES_NOT_INJECTED, message, on_node=new.node)


def _without(record: NodeDeviceRecord) -> dict[tuple[str, str], About]:
    """Pods of containers that run without theirs, by pod UID and container, whether devices are recorded as theirs or not."""
    entries: list[Allocation | Waiting] = [held for held in record.allocations if not held.is_releasing]
    entries += record.waiting
    return {
        (entry.pod_uid, entry.container): about_pod(entry.namespace, entry.name, entry.pod_uid)
        for entry in entries
        if entry.not_injected and entry.namespace and entry.name
    }
