"""Kubernetes Events: which transitions of a NodeDevice are reported, and on which object.

An Event reports a transition. An object that is seen for the first time has none: its state before the operator started has been
reported. Nor has an agent's first report of a resource, with two exceptions: what an administrator has to fix, and containers that
run without their devices, as they started before the resource was known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import AllocationRecord, NodeDeviceRecord
from nodedevice_operator.objects.nodedevice_schema import Waiting

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# Reasons of a condition Registered that is True: the plugin serves, and needs attention.
NEEDS_ATTENTION: Final = frozenset(
    {
        names.Reason.DEVICES_REFUSED,
        names.Reason.CHECKPOINT_UNREADABLE,
        names.Reason.SEVERAL_PLUGINS,
        names.Reason.CORDONED_DEVICE_UNKNOWN,
        names.Reason.CORDON_NOT_POSSIBLE,
    }
)

_ENDPOINTS: Final = {
    "Running": (NORMAL, names.Reason.ENDPOINT_RUNNING, "the device plugin runs again"),
    "Stopped": (WARNING, names.Reason.ENDPOINT_STOPPED, "the device plugin has stopped; its devices are kept for now"),
    "Gone": (WARNING, names.Reason.ENDPOINT_GONE, "the device plugin did not come back in time"),
}
# How many device IDs a sentence names; the rest is a number.
_NAMED_DEVICES: Final = 5
# Of an Event that waits: an agent may report thousands of devices at once, each for a reason of its own.
_MOST_DEVICES: Final = 64
_MOST_REASONS: Final = 8
# Characters; the API server rejects a longer message.
LONGEST_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class DeviceAggregate:
    """Devices of one resource on one node with the same transition; `reasons` are those of the unhealthy ones.

    of_pod: for the pod that holds them, all of them. unnamed: how many more there are that the NodeDevice only counts.
    """

    resource: str
    node: str
    device_ids: frozenset[str]
    reasons: frozenset[str] = frozenset()
    of_pod: bool = False
    unnamed: int = 0
    is_recovery: bool = False

    def sentence(self) -> str:
        """How many and some of them, such as `2 devices (gpu-0, gpu-1) of vendor.com/gpu on node-a unhealthy (Overheated)`."""
        what = f"{_devices(sorted(self.device_ids), self.unnamed)} of {self.resource} on {self.node}"
        if self.is_recovery:
            return f"{what} healthy again"
        why = f" ({', '.join(sorted(self.reasons))})" if self.reasons else ""
        kept = "; held by this pod until it ends" if self.of_pod else ""
        return f"{what} unhealthy{why}{kept}"

    def may_share(self, other: "DeviceAggregate") -> bool:
        """Whether some device may be in both: where some are only counted, any."""
        return bool(self.unnamed or other.unnamed or self.device_ids & other.device_ids)


def some(device_ids: list[str], unnamed: int = 0) -> str:
    """A few of the IDs and how many more, such as `gpu-0, gpu-1 and 6 more`. unnamed: how many have no ID here."""
    named = ", ".join(device_ids[:_NAMED_DEVICES])
    more = max(len(device_ids) - _NAMED_DEVICES, 0) + unnamed
    return f"{named} and {more} more" if more > 0 else named


def _devices(device_ids: list[str], unnamed: int) -> str:
    number = len(device_ids) + unnamed
    noun = "device" if number == 1 else "devices"
    return f"{number} {noun} ({some(device_ids, unnamed)})" if device_ids else f"{number} {noun}"


class EventReason:
    """Reasons of the operator's own Events; the others are those of the conditions that they report."""

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
    CORDONS_RESTORED: Final = "CordonsRestored"


# The Event that reverses the other.
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
    """One Event to post. on_node: its pod must run on that node, and is read first to verify that.

    aggregate: what it counts, so that a similar one a moment later is merged with it. is_ongoing: it reports a state that goes
    on, and that a new process finds again; it is not repeated while such an Event exists.
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
    """Events about how `new` differs from `old`; none where `old` is another object, or None."""
    if old is None or old.uid != new.uid:
        return ()
    if not new.has_status:
        return tuple(_edited(old, new))
    always = (*_needs_attention(old, new), *_running_without(old, new), *_edited(old, new))
    return (*_endpoint(old, new), *_health(old, new), *_waiting(old, new), *always) if old.has_status else always


def bounded(event: Event) -> Event:
    """The same with fewer device IDs, so that thousands of Events can wait: the others are only counted."""
    message, aggregate = event.message[:LONGEST_MESSAGE], event.aggregate
    if aggregate is None or len(aggregate.device_ids) <= _MOST_DEVICES:
        return replace(event, message=message)
    aggregate = replace(
        aggregate,
        device_ids=frozenset(sorted(aggregate.device_ids)[:_MOST_DEVICES]),
        reasons=frozenset(sorted(aggregate.reasons)[:_MOST_REASONS]),
        unnamed=aggregate.unnamed + len(aggregate.device_ids) - _MOST_DEVICES,
    )
    return replace(event, message=message, aggregate=aggregate)


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
    if new.endpoint in _ENDPOINTS and old.endpoint not in (new.endpoint, None):
        kind, reason, sentence = _ENDPOINTS[new.endpoint]
        yield Event(about_node_device(new), kind, reason, f"{new.resource} on {new.node}: {sentence}")


def _needs_attention(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """A problem of a plugin that serves, or of the agent itself, that an administrator has to fix."""
    before, now = (record.conditions.get(names.Condition.REGISTERED) for record in (old, new))
    if now is None or now.reason not in NEEDS_ATTENTION or (before is not None and before.reason == now.reason):
        return
    yield Event(about_node_device(new), WARNING, now.reason, f"{new.resource} on {new.node}: {now.message}")


def _edited(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    editors = ", ".join(sorted(new.edited_by - old.edited_by))
    if editors:
        rest = "each restores its own fields, the agent once it runs"
        if not new.has_status:
            rest = f"no agent has reported {new.resource} there, so values written by other clients are ignored"
        message = (
            f"{new.resource} on {new.node}: {editors} changed the status, which only agent and operator write; {rest}"
        )
        yield Event(about_node_device(new), WARNING, EventReason.EDITED, message)


def _health(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    failed, recovered = _failed(old, new), _recovered(old, new)
    unnamed_failed, unnamed_recovered = _unnamed(old, new, len(failed), len(recovered))
    for kind, reason, changed, unnamed in (
        (WARNING, EventReason.DEVICE_UNHEALTHY, failed, unnamed_failed),
        (NORMAL, EventReason.DEVICE_RECOVERED, recovered, unnamed_recovered),
    ):
        if changed or unnamed:
            aggregate = DeviceAggregate(
                new.resource,
                new.node,
                changed,
                _reasons(new, failed) if kind == WARNING else frozenset(),
                unnamed=unnamed,
                is_recovery=kind == NORMAL,
            )
            yield Event(about_node_device(new), kind, reason, aggregate.sentence(), aggregate=aggregate)
            yield from _of_pods(new, kind, reason, changed)


def _failed(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Devices known to have become unhealthy. Where `old` omits unhealthy ones, an unlisted one may have been unhealthy before."""
    found = new.unhealthy() - old.unhealthy()
    return found & frozenset(old.listed) if old.unlisted_unhealthy else found


def _recovered(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Devices known to have recovered. One that is no longer listed has not, unless the list omits only healthy ones."""
    found = old.unhealthy() - new.unhealthy()
    is_rest_healthy = new.devices_omitted and not new.unlisted_unhealthy and new.total >= old.total
    return found if is_rest_healthy else found & frozenset(new.listed)


def _unnamed(old: NodeDeviceRecord, new: NodeDeviceRecord, failed: int, recovered: int) -> tuple[int, int]:
    """How many more must have failed, and recovered, by the totals, which count all devices, listed or not.

    failed, recovered: how many are known by their IDs.
    """
    if not (old.devices_omitted or new.devices_omitted):
        return 0, 0
    more = (new.total - new.healthy) - (old.total - old.healthy) - (failed - recovered)
    # unhealthy devices that the plugin no longer lists have not recovered
    gone = max(old.total - new.total, 0)
    return max(more, 0), max(-more - gone, 0)


def _of_pods(new: NodeDeviceRecord, kind: str, reason: str, changed: frozenset[str]) -> Iterator[Event]:
    """The same for each pod that holds some of `changed`: users of a pod may know nothing of NodeDevices."""
    held: dict[About, frozenset[str]] = {}
    for allocation in new.allocations:
        if allocation.namespace and allocation.name and not allocation.is_releasing:
            pod = about_pod(allocation.namespace, allocation.name, allocation.pod_uid)
            held[pod] = held.get(pod, frozenset()) | (changed & frozenset(allocation.devices))
    for pod, ids in held.items():
        if ids:
            reasons = _reasons(new, ids) if kind == WARNING else frozenset()
            aggregate = DeviceAggregate(new.resource, new.node, ids, reasons, of_pod=True, is_recovery=kind == NORMAL)
            yield Event(pod, kind, reason, aggregate.sentence(), on_node=new.node, aggregate=aggregate)


def _reasons(record: NodeDeviceRecord, failed: frozenset[str]) -> frozenset[str]:
    if record.endpoint == "Stopped":
        # for all of its devices, and not repeated in each
        return frozenset({names.Reason.ENDPOINT_STOPPED})
    return frozenset(record.devices[device_id].reason or names.Reason.REPORTED_UNHEALTHY for device_id in failed)


def _waiting(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    known = {_transition(waiting) for waiting in old.waiting}
    for waiting in new.waiting:
        if waiting.namespace and waiting.name and _transition(waiting) not in known:
            about = about_pod(waiting.namespace, waiting.name, waiting.pod_uid)
            why = f" ({waiting.message})" if waiting.message else ""
            verb = "cannot get" if waiting.final else "waits for"
            message = f"container {waiting.container} {verb} {new.resource} on {new.node}: {waiting.reason}{why}"
            yield Event(about, WARNING, EventReason.DEVICES_WAITING, message, on_node=new.node)


def _transition(waiting: Waiting) -> tuple[str, str, str]:
    # numbers in the message may change while the reason stays
    return waiting.pod_uid, waiting.container, waiting.reason


def _running_without(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    before, now = _without(old), _without(new)
    for pod, container in sorted(now.keys() - before.keys()):
        about = now[pod, container]
        message = (
            f"container {container} runs without the {new.resource} that it requested on {new.node}; "
            "delete the pod so that a new one gets it"
        )
        yield Event(about, WARNING, names.Reason.DEVICES_NOT_INJECTED, message, on_node=new.node)


def _without(record: NodeDeviceRecord) -> dict[tuple[str, str], About]:
    """Pods of containers that run without their devices, by pod UID and container, whether devices are allocated to them or not."""
    entries: list[AllocationRecord | Waiting] = [held for held in record.allocations if not held.is_releasing]
    entries += record.waiting
    return {
        (entry.pod_uid, entry.container): about_pod(entry.namespace, entry.name, entry.pod_uid)
        for entry in entries
        if entry.not_injected and entry.namespace and entry.name
    }
