"""Which changes of a NodeDevice are reported as Events, and on which object.

An Event reports a transition. An object that is seen for the first time has none: its state before the operator started has been
reported. Nor has an agent's first report of a resource, with two exceptions: what an administrator has to fix, and containers that
run without their devices, as they started before the resource was known.
"""

from collections.abc import Iterator
from typing import Final

from nodedevice_api import names
from nodedevice_api.nodedevice import Waiting

from nodedevice_operator.objects.nodedevice import AllocationRecord, NodeDeviceRecord
from nodedevice_operator.observability.aggregates import CORDONED, HEALTHY_AGAIN, UNCORDONED, UNHEALTHY, DeviceAggregate
from nodedevice_operator.observability.events import (
    NEEDS_ATTENTION,
    NORMAL,
    WARNING,
    About,
    Event,
    EventReason,
    about_node_device,
    about_pod,
)

_ENDPOINTS: Final = {
    "Running": (NORMAL, names.Reason.ENDPOINT_RUNNING, "the device plugin runs again"),
    "Stopped": (
        WARNING,
        names.Reason.ENDPOINT_STOPPED,
        "the device plugin has stopped, or does not respond; its devices are kept for now",
    ),
    "Gone": (WARNING, names.Reason.ENDPOINT_GONE, "the device plugin did not come back in time"),
}
# The same of what a DRA driver offers.
_POOLS: Final = {
    "Running": (NORMAL, names.Reason.ENDPOINT_RUNNING, "its DRA driver has ResourceSlices of this node again"),
    "Gone": (WARNING, names.Reason.ENDPOINT_GONE, "its DRA driver has no ResourceSlice of this node any more"),
}
_ENDED: Final = {
    names.Reason.NOT_CONFIGURED: (
        NORMAL,
        names.Reason.NOT_CONFIGURED,
        "its built-in plugin was taken out of the configuration",
    ),
    names.Reason.PLACE_TAKEN: (
        WARNING,
        names.Reason.PLACE_TAKEN,
        "another resource name has its place, as a node has 256 at most",
    ),
}


def transitions(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> tuple[Event, ...]:
    """Events about how `new` differs from `old`; none where `old` is another object, or None."""
    if old is None or old.uid != new.uid:
        return ()
    if not new.has_status:
        return (*_cordons(old, new), *_edited(old, new))
    attention = (*_needs_attention(old, new), *_offered_twice(old, new))
    always = (*attention, *_running_without(old, new), *_cordons(old, new), *_edited(old, new))
    return (*_endpoint(old, new), *_health(old, new), *_waiting(old, new), *always) if old.has_status else always


def _endpoint(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    is_other = (old.endpoint, old.ended) != (new.endpoint, new.ended)
    sentences = _POOLS if new.served_by == names.SERVED_BY_DRA else _ENDPOINTS
    if new.endpoint in sentences and old.endpoint is not None and is_other:
        kind, reason, sentence = _ENDED.get(new.ended) or sentences[new.endpoint]
        yield Event(about_node_device(new), kind, reason, f"{new.resource} on {new.node}: {sentence}")


def _needs_attention(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """A problem of a plugin that serves, or of the agent itself, that an administrator has to fix."""
    now = new.conditions.get(names.Condition.REGISTERED)
    if now is None or now.reason not in NEEDS_ATTENTION or now.reason == old.reason_of(names.Condition.REGISTERED):
        return
    yield Event(about_node_device(new), WARNING, now.reason, f"{new.resource} on {new.node}: {now.message}")


def _offered_twice(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """Its beginning and its end. Meanwhile the condition says how many pods hold now."""
    was, is_now = (record.is_condition(names.Condition.OFFERED_TWICE, "True") for record in (old, new))
    if is_now and not was:
        message = new.conditions[names.Condition.OFFERED_TWICE].message
        yield Event(
            about_node_device(new), WARNING, names.Reason.OFFERED_TWICE, f"{new.resource} on {new.node}: {message}"
        )
    elif was and not is_now:
        message = f"{new.resource} on {new.node}: no other resource offers its devices any more"
        yield Event(about_node_device(new), NORMAL, EventReason.OFFERED_ONCE, message)


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


def _cordons(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """Reports cordoned and uncordoned devices; only their number if there are too many."""
    if new.is_only_shown:
        return  # the cordons have no effect; conditions say so
    if new.knows_cordons and old.knows_cordons:
        # the operator restores the cordons of a predecessor, and reports that itself
        added, removed = new.cordoned_ids - old.cordoned_ids - old.lost_cordons, old.cordoned_ids - new.cordoned_ids
        more = fewer = 0
    else:
        added = removed = frozenset[str]()
        more, fewer = max(new.cordons - old.cordons, 0), max(old.cordons - new.cordons, 0)
    for reason, became, ids, unnamed, noted in (
        (EventReason.DEVICES_CORDONED, CORDONED, added, more, new.cordoned_by),
        (EventReason.DEVICES_UNCORDONED, UNCORDONED, removed, fewer, old.cordoned_by),
    ):
        if ids or unnamed:
            by = frozenset(noted[i] for i in ids if i in noted)
            aggregate = DeviceAggregate(new.resource, new.node, ids, unnamed=unnamed, became=became, by=by)
            yield Event(about_node_device(new), NORMAL, reason, aggregate.sentence(), aggregate=aggregate)


def _health(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    failed, recovered = _failed(old, new), _recovered(old, new)
    unnamed_failed, unnamed_recovered = _unnamed(old, new, len(failed), len(recovered))
    for kind, reason, became, changed, unnamed in (
        (WARNING, EventReason.DEVICE_UNHEALTHY, UNHEALTHY, failed, unnamed_failed),
        (NORMAL, EventReason.DEVICE_RECOVERED, HEALTHY_AGAIN, recovered, unnamed_recovered),
    ):
        if changed or unnamed:
            aggregate = DeviceAggregate(
                new.resource,
                new.node,
                changed,
                _reasons(new, failed) if kind == WARNING else frozenset(),
                unnamed=unnamed,
                became=became,
            )
            yield Event(about_node_device(new), kind, reason, aggregate.sentence(), aggregate=aggregate)
            yield from _of_pods(new, kind, reason, changed)


def _failed(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Devices known to have become unhealthy. If `old` omits unhealthy ones, an unlisted one may have been unhealthy before."""
    found = new.unhealthy() - old.unhealthy()
    return found & frozenset(old.listed) if old.unlisted_unhealthy else found


def _recovered(old: NodeDeviceRecord, new: NodeDeviceRecord) -> frozenset[str]:
    """Devices known to have recovered. An unlisted device has not, unless the list omits only healthy ones."""
    found = old.unhealthy() - new.unhealthy()
    is_rest_healthy = new.devices_omitted and not new.unlisted_unhealthy and new.total >= old.total
    return found if is_rest_healthy else found & frozenset(new.listed)


def _unnamed(old: NodeDeviceRecord, new: NodeDeviceRecord, failed: int, recovered: int) -> tuple[int, int]:
    """How many more must have failed, and recovered, by the totals. failed, recovered: how many are known by their IDs."""
    if not (old.devices_omitted or new.devices_omitted):
        return 0, 0
    more = new.broken - old.broken - (failed - recovered)
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
            became = UNHEALTHY if kind == WARNING else HEALTHY_AGAIN
            aggregate = DeviceAggregate(new.resource, new.node, ids, reasons, of_pod=True, became=became)
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
            verb = "cannot get" if waiting.final else "is pending without"
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
