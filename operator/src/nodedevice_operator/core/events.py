"""Kubernetes Events: what is told, on which object, and when a change is worth one.

An Event tells a transition. The first sight of an object is none: what was there before the operator started has been told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodedevice_api import names

from nodedevice_operator.core.records import NodeDeviceRecord, NodeRecord, Waiting

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# How many device IDs a sentence names; the rest is a number.
_NAMED_DEVICES: Final = 5


class EventReason:
    """Reasons of the operator's own Events; the others come from the conditions they tell of."""

    DEVICES_ALLOCATED: Final = "DevicesAllocated"
    DEVICES_WAITING: Final = "DevicesWaiting"
    DEVICE_UNHEALTHY: Final = "DeviceUnhealthy"
    DEVICE_RECOVERED: Final = "DeviceRecovered"
    ALLOCATION_REFUSED: Final = "AllocationRefused"
    CAPACITY_REPAIRED: Final = "CapacityRepaired"
    CAPACITY_CONFLICT: Final = "CapacityConflict"
    CAPACITY_CONFLICT_ENDED: Final = "CapacityConflictEnded"


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
    """One Event to post. `on_node` asks that the pod it is about be looked up first: it must run there."""

    about: About
    type: str
    reason: str
    message: str
    on_node: str | None = None


def about_node(node: NodeRecord) -> About:
    return About("v1", "Node", "", node.name, node.uid)


def about_node_device(record: NodeDeviceRecord) -> About:
    return About(names.API_VERSION, names.NODE_DEVICE, "", record.name, record.uid)


def about_pod(namespace: str, name: str, uid: str) -> About:
    return About("v1", "Pod", namespace, name, uid)


def transitions(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> tuple[Event, ...]:
    """Events that tell how `new` differs from `old`; none where `old` is another object, or nothing is known of it."""
    if old is None or old.uid != new.uid or not old.has_status or not new.has_status:
        return ()
    return (*_endpoint(old, new), *_health(old, new), *_waiting(old, new))


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


def _health(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    broken = sorted(new.unhealthy() - old.unhealthy())
    if broken:
        reasons = sorted({new.devices[device_id].reason or names.Reason.REPORTED_UNHEALTHY for device_id in broken})
        message = f"{_devices(broken)} of {new.resource} on {new.node} unhealthy ({', '.join(reasons)})"
        yield Event(about_node_device(new), WARNING, EventReason.DEVICE_UNHEALTHY, message)
    # a device that is no longer listed has not recovered, unless the list leaves out the healthy ones
    listed = frozenset(new.listed)
    mended = sorted(i for i in old.unhealthy() - new.unhealthy() if i in listed or new.devices_omitted)
    if mended:
        message = f"{_devices(mended)} of {new.resource} on {new.node} healthy again"
        yield Event(about_node_device(new), NORMAL, EventReason.DEVICE_RECOVERED, message)


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


def _devices(device_ids: list[str]) -> str:
    noun = "device" if len(device_ids) == 1 else "devices"
    return f"{len(device_ids)} {noun} ({some(device_ids)})"
