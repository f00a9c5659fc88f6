"""Kubernetes Events: which transitions of a NodeDevice are reported, and on which object.

An Event reports a transition. An object that is seen for the first time has none: its state before the operator started has been
reported. Nor has an agent's first report of a resource, with two exceptions: what an administrator has to fix, and containers that
run without their devices, as they started before the resource was known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names
from nodedevice_api.nodedevice import Waiting

from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import AllocationRecord, NodeDeviceRecord
from nodedevice_operator.observability.aggregates import (
    CORDONED,
    HEALTHY_AGAIN,
    UNCORDONED,
    UNHEALTHY,
    Aggregate,
    DeviceAggregate,
    NumberAggregate,
)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# Reasons of a condition Registered that is True: the plugin serves, and needs attention.
NEEDS_ATTENTION: Final = frozenset(
    {
        names.Reason.DEVICES_REFUSED,
        names.Reason.CHECKPOINT_UNREADABLE,
        names.Reason.CHECKPOINT_NOT_WRITTEN,
        names.Reason.SEVERAL_PLUGINS,
        names.Reason.CORDONED_DEVICE_UNKNOWN,
        names.Reason.CORDON_NOT_POSSIBLE,
    }
)

# Reasons of conditions that Events have, too.
OF_CONDITIONS: Final = NEEDS_ATTENTION | {
    names.Reason.ENDPOINT_RUNNING,
    names.Reason.ENDPOINT_STOPPED,
    names.Reason.ENDPOINT_GONE,
    names.Reason.NOT_CONFIGURED,
    names.Reason.PLACE_TAKEN,
    names.Reason.DEVICES_NOT_INJECTED,
    names.Reason.LEASE_RENEWED,
    names.Reason.LEASE_EXPIRED,
    names.Reason.FREE_WITHDRAWN,
    names.Reason.OFFERED_TWICE,
}

_ENDPOINTS: Final = {
    "Running": (NORMAL, names.Reason.ENDPOINT_RUNNING, "the device plugin runs again"),
    "Stopped": (
        WARNING,
        names.Reason.ENDPOINT_STOPPED,
        "the device plugin has stopped, or does not answer; its devices are kept for now",
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
# Characters; the API server rejects a longer message.
LONGEST_MESSAGE: Final = 1024


class EventReason:
    """Reasons of the operator's own Events; the others are those of the conditions that they report."""

    # a NodeDevice
    CAPACITY_ADVERTISED: Final = "CapacityAdvertised"
    """The Node advertises the resource from now on, with that many devices."""
    CAPACITY_CHANGED: Final = "CapacityChanged"
    """The Node advertises more or fewer devices than before, or none any more."""
    DEVICES_CORDONED: Final = "DevicesCordoned"
    """An administrator took devices out of service."""
    DEVICES_UNCORDONED: Final = "DevicesUncordoned"
    """An administrator put devices back into service."""
    CORDONS_RESTORED: Final = "CordonsRestored"
    """The NodeDevice was deleted and made again, and has its cordons again."""
    CONTRADICTION: Final = "StatusContradictsItself"
    """The numbers of the status contradict its lists; no more devices are offered than are listed as free."""
    EDITED: Final = "StatusEdited"
    """A client other than agent and operator wrote the status."""
    OFFERED_ONCE: Final = "OfferedOnce"
    """No other resource of the node offers its devices any more."""
    ALLOCATION_REFUSED: Final = "AllocationRefused"
    """An agent reported devices of a pod that is not bound to its node."""
    # a NodeDevice, and each pod that holds the device
    DEVICE_UNHEALTHY: Final = "DeviceUnhealthy"
    """Devices broke."""
    DEVICE_RECOVERED: Final = "DeviceRecovered"
    """Devices that had broken are healthy again."""
    # a Node and its NodeDevice
    CAPACITY_REPAIRED: Final = "CapacityRepaired"
    """Another client had changed the advertised number; the operator restored it."""
    CAPACITY_CONFLICT: Final = "CapacityConflict"
    """Another field manager owns the resource on the Node, which the operator does not write."""
    CAPACITY_CONFLICT_ENDED: Final = "CapacityConflictEnded"
    """No other field manager owns the resource any more."""
    # a Node
    REGISTRATION_REFUSED: Final = "RegistrationRefused"
    """The agent refused the registration of a device plugin."""
    TOO_MANY_NODE_DEVICES: Final = "TooManyNodeDevices"
    """There are more NodeDevices of the node than are taken into account: the oldest are."""
    # the policy nodedevice-required-plugins, or its binding
    POLICY_CONFLICT: Final = "PolicyConflict"
    """Another client changes or deletes it again and again; it is written again after a pause."""
    # a pod
    DEVICES_ALLOCATED: Final = "DevicesAllocated"
    """The pod has its devices."""
    DEVICES_WAITING: Final = "DevicesWaiting"
    """A container of the pod waits for devices, or cannot get them."""
    POD_EVICTED: Final = "DeviceEviction"
    """The pod was evicted, as its device broke."""
    EVICTION_REFUSED: Final = "DeviceEvictionRefused"
    """The pod's device broke, and the API server did not allow its eviction yet."""
    # the Namespace of the agents' Leases
    AGENTS_SILENT_TOGETHER: Final = "ManyAgentLeasesExpired"
    """Many agents stopped renewing their Leases at about the same time; nothing is withdrawn."""
    AGENTS_SILENT_ENDED: Final = "ManyAgentLeasesExpiredEnded"
    """That is over."""


# The Event that reverses the other.
OPPOSITES: Final = {
    EventReason.DEVICE_UNHEALTHY: EventReason.DEVICE_RECOVERED,
    EventReason.DEVICE_RECOVERED: EventReason.DEVICE_UNHEALTHY,
    EventReason.DEVICES_CORDONED: EventReason.DEVICES_UNCORDONED,
    EventReason.DEVICES_UNCORDONED: EventReason.DEVICES_CORDONED,
}
# Of ordinary operation: in a fleet that changes as a whole they are counted together, and never keep others waiting.
# With what they say of many nodes.
ROUTINE: Final = {
    EventReason.CAPACITY_ADVERTISED: "advertised",
    EventReason.CAPACITY_CHANGED: "the number of advertised devices changed",
    EventReason.DEVICES_CORDONED: "devices cordoned",
    EventReason.DEVICES_UNCORDONED: "devices uncordoned",
}


@dataclass(frozen=True, slots=True)
class About:
    """The object an Event is on. Cluster-scoped objects have namespace "". node: which it belongs to, where that is known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    node: str = ""


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
    aggregate: Aggregate | None = None
    is_ongoing: bool = False

    @property
    def node(self) -> str:
        """The node whose agent, or whose devices, it is due to; "" for what is about none."""
        return self.on_node or self.about.node


_KIND: Final = About(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", f"{names.NODE_DEVICES}.{names.GROUP}", ""
)


def about_node(node: NodeRecord) -> About:
    return About("v1", "Node", "", node.name, node.uid, node.name)


def about_node_device(record: NodeDeviceRecord) -> About:
    return About(names.API_VERSION, names.NODE_DEVICE, "", record.name, record.uid, record.node)


def about_pod(namespace: str, name: str, uid: str, node: str = "") -> About:
    """node: on which it is known to run."""
    return About("v1", "Pod", namespace, name, uid, node)


def transitions(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> tuple[Event, ...]:
    """Events about how `new` differs from `old`; none where `old` is another object, or None."""
    if old is None or old.uid != new.uid:
        return ()
    if not new.has_status:
        return (*_cordons(old, new), *_edited(old, new))
    attention = (*_needs_attention(old, new), *_offered_twice(old, new))
    always = (*attention, *_running_without(old, new), *_cordons(old, new), *_edited(old, new))
    return (*_endpoint(old, new), *_health(old, new), *_waiting(old, new), *always) if old.has_status else always


def bounded(event: Event) -> Event:
    """The same with a message that the API server takes, and few device IDs, so that thousands of Events can wait."""
    aggregate = event.aggregate and event.aggregate.bounded()
    return replace(event, message=event.message[:LONGEST_MESSAGE], aggregate=aggregate)


def merged(first: Event, second: Event) -> Event:
    """One Event in place of two that count the same on the same object; its message is "" where the second undoes the first."""
    match first.aggregate, second.aggregate:
        case DeviceAggregate() as devices, DeviceAggregate() as more:
            aggregate = devices.with_more(more)
            return replace(second, message=aggregate.sentence(), aggregate=aggregate)
        case NumberAggregate() as number, NumberAggregate() as later:
            return advertised(second.about, number.with_later(later))
    raise AssertionError("only Events that count the same are merged")


def may_reverse(first: Event, second: Event) -> bool:
    """Whether the second may be about a device of the first, of which it reports the opposite."""
    match first.aggregate, second.aggregate:
        case DeviceAggregate() as devices, DeviceAggregate() as others:
            return devices.may_share(others)
    return False


def advertised(about: About, aggregate: NumberAggregate) -> Event:
    """The Node advertises another number of devices."""
    reason = EventReason.CAPACITY_ADVERTISED if aggregate.before is None else EventReason.CAPACITY_CHANGED
    return Event(about, NORMAL, reason, aggregate.sentence(), aggregate=aggregate)


def gathered_as(reason: str) -> str:
    """The reason under which Events gather: how many are advertised at first, and then, is one number."""
    return EventReason.CAPACITY_CHANGED if reason == EventReason.CAPACITY_ADVERTISED else reason


def of_many_nodes(reason: str, resource: str, nodes: int) -> Event:
    """One routine Event in place of those of so many nodes, on the kind, which all of them have in common."""
    where = "1 more node" if nodes == 1 else f"{nodes} more nodes"
    return Event(_KIND, NORMAL, reason, f"{resource}: {ROUTINE[reason]} on {where}")


def of_too_many(type_: str, reason: str, events: int) -> Event:
    """One Event, on the kind, in place of so many that came faster than they can be posted."""
    what = "1 more Event" if events == 1 else f"{events} more Events"
    return Event(_KIND, type_, reason, f"{what} with this reason, on other objects: too many at a time to post each")


def _endpoint(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    is_other = (old.endpoint, old.ended) != (new.endpoint, new.ended)
    sentences = _POOLS if new.served_by == names.SERVED_BY_DRA else _ENDPOINTS
    if new.endpoint in sentences and old.endpoint is not None and is_other:
        kind, reason, sentence = _ENDED.get(new.ended) or sentences[new.endpoint]
        yield Event(about_node_device(new), kind, reason, f"{new.resource} on {new.node}: {sentence}")


def _needs_attention(old: NodeDeviceRecord, new: NodeDeviceRecord) -> Iterator[Event]:
    """A problem of a plugin that serves, or of the agent itself, that an administrator has to fix."""
    before, now = (record.conditions.get(names.Condition.REGISTERED) for record in (old, new))
    if now is None or now.reason not in NEEDS_ATTENTION or (before is not None and before.reason == now.reason):
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
    """What an administrator took out of service, and back; where there are too many to name them, how many."""
    if new.is_only_shown:
        return  # the cordons have no effect; conditions say so
    if new.knows_cordons and old.knows_cordons:
        # those of an object before it are set again by the operator, which reports that
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
