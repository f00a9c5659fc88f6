"""Kubernetes Events: which reasons there are, what an Event is about, and how several become one."""

from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.aggregates import Aggregate, DeviceAggregate, NumberAggregate

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
        names.Reason.POOL_INCOMPLETE,
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
    """A container of the pod is pending without devices, or cannot get them."""
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
