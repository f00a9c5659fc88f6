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

# Reasons of conditions that are also reasons of Events.
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
    """Reasons of the operator's own Events, documented as Reason. Other Events have the reason of a condition."""

    # NodeDevice
    CAPACITY_ADVERTISED: Final = "CapacityAdvertised"
    """The Node shows a new resource. Remedy: none."""
    CAPACITY_CHANGED: Final = "CapacityChanged"
    """The Node shows another number of devices. Remedy: none."""
    DEVICES_CORDONED: Final = "DevicesCordoned"
    """An administrator cordoned devices. Remedy: none."""
    DEVICES_UNCORDONED: Final = "DevicesUncordoned"
    """An administrator uncordoned devices. Remedy: none."""
    CORDONS_RESTORED: Final = "CordonsRestored"
    """A recreated NodeDevice has its cordons again. Remedy: none."""
    CONTRADICTION: Final = "StatusContradictsItself"
    """Numbers and lists contradict each other; the lower number counts.

    Remedy: Find the writer: `kubectl get nd NAME -o yaml --show-managed-fields`.
    """
    EDITED: Final = "StatusEdited"
    """Another client wrote the status; it is restored. Remedy: Stop the named writer."""
    OFFERED_ONCE: Final = "OfferedOnce"
    """No other resource offers the devices any longer. Remedy: none."""
    ALLOCATION_REFUSED: Final = "AllocationRefused"
    """An agent reported devices of another node's pod. Remedy: Find the user of that node's token in the API server's audit log."""
    # NodeDevice, pod
    DEVICE_UNHEALTHY: Final = "DeviceUnhealthy"
    """Devices became unhealthy; pods keep them. Remedy: See the device's reason."""
    DEVICE_RECOVERED: Final = "DeviceRecovered"
    """Devices are healthy again. Remedy: none."""
    # Node, NodeDevice
    CAPACITY_REPAIRED: Final = "CapacityRepaired"
    """Another client changed the number; the operator restored it. Remedy: Stop the named writer."""
    CAPACITY_CONFLICT: Final = "CapacityConflict"
    """Another field manager owns the resource on the Node. Remedy: See the condition Conflict."""
    CAPACITY_CONFLICT_ENDED: Final = "CapacityConflictEnded"
    """The other field manager released the resource. Remedy: none."""
    # Node
    REGISTRATION_REFUSED: Final = "RegistrationRefused"
    """The agent rejected a device plugin's registration. Remedy: Correct what the message names."""
    TOO_MANY_NODE_DEVICES: Final = "TooManyNodeDevices"
    """More than 512 NodeDevices name the node; the oldest count. Remedy: Find their writer; delete them."""
    # policy, binding
    POLICY_CONFLICT: Final = "PolicyConflict"
    """Another client keeps changing it. Remedy: Stop that client, or set `requiredPlugins.enabled: false`."""
    # pod
    DEVICES_ALLOCATED: Final = "DevicesAllocated"
    """The pod has its devices. Remedy: none."""
    DEVICES_WAITING: Final = "DevicesWaiting"
    """A container has no devices yet. Remedy: See the message."""
    POD_EVICTED: Final = "DeviceEviction"
    """Its device is unhealthy or missing, or a container lacks its devices. Remedy: None; see `heldDevicePolicy`."""
    EVICTION_REFUSED: Final = "DeviceEvictionRefused"
    """The API server does not allow the eviction yet. Remedy: Check the PodDisruptionBudget."""
    # Namespace
    AGENTS_SILENT_TOGETHER: Final = "ManyAgentLeasesExpired"
    """Many agents stopped renewing together. Remedy: Check the API server and the network."""
    AGENTS_SILENT_ENDED: Final = "ManyAgentLeasesExpiredEnded"
    """These agents renew their Leases again. Remedy: none."""


# The Event that reverses the other.
OPPOSITES: Final = {
    EventReason.DEVICE_UNHEALTHY: EventReason.DEVICE_RECOVERED,
    EventReason.DEVICE_RECOVERED: EventReason.DEVICE_UNHEALTHY,
    EventReason.DEVICES_CORDONED: EventReason.DEVICES_UNCORDONED,
    EventReason.DEVICES_UNCORDONED: EventReason.DEVICES_CORDONED,
}
# Routine reasons, with their text for many nodes: in a fleet that changes as a whole they are counted together, and never delay
# others.
ROUTINE: Final = {
    EventReason.CAPACITY_ADVERTISED: "advertised",
    EventReason.CAPACITY_CHANGED: "the number of advertised devices changed",
    EventReason.DEVICES_CORDONED: "devices cordoned",
    EventReason.DEVICES_UNCORDONED: "devices uncordoned",
}


@dataclass(frozen=True, slots=True)
class About:
    """The object an Event is on. Cluster-scoped objects have namespace "". node: its node, if known."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """on_node: where its pod must run, which is verified. aggregate: merges similar ones. is_ongoing: posted once."""

    about: About
    type: str
    reason: str
    message: str
    on_node: str | None = None
    aggregate: Aggregate | None = None
    is_ongoing: bool = False

    @property
    def node(self) -> str:
        """The node whose agent or devices caused it; "" without a node."""
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
    """A copy with a message of valid length, and few device IDs, so that thousands of Events can wait."""
    aggregate = event.aggregate and event.aggregate.bounded()
    return replace(event, message=event.message[:LONGEST_MESSAGE], aggregate=aggregate)


def merged(first: Event, second: Event) -> Event:
    """Merges two Events with the same count on the same object; the message is "" if the second undoes the first."""
    match first.aggregate, second.aggregate:
        case DeviceAggregate() as devices, DeviceAggregate() as more:
            aggregate = devices.with_more(more)
            return replace(second, message=aggregate.sentence(), aggregate=aggregate)
        case NumberAggregate() as number, NumberAggregate() as later:
            return advertised(second.about, number.with_later(later))
    raise AssertionError("only Events that count the same are merged")


def may_reverse(first: Event, second: Event) -> bool:
    """Whether the second may report the opposite of the first for one of its devices."""
    match first.aggregate, second.aggregate:
        case DeviceAggregate() as devices, DeviceAggregate() as others:
            return devices.may_share(others)
    return False


def advertised(about: About, aggregate: NumberAggregate) -> Event:
    reason = EventReason.CAPACITY_ADVERTISED if aggregate.before is None else EventReason.CAPACITY_CHANGED
    return Event(about, NORMAL, reason, aggregate.sentence(), aggregate=aggregate)


def gathered_as(reason: str) -> str:
    """The reason under which Events gather: the first advertised number and its changes gather together."""
    return EventReason.CAPACITY_CHANGED if reason == EventReason.CAPACITY_ADVERTISED else reason


def of_many_nodes(reason: str, resource: str, nodes: int) -> Event:
    """One routine Event for many nodes, on the CRD."""
    where = "1 more node" if nodes == 1 else f"{nodes} more nodes"
    return Event(_KIND, NORMAL, reason, f"{resource}: {ROUTINE[reason]} on {where}")


def of_too_many(type_: str, reason: str, events: int) -> Event:
    """One Event on the CRD for many that came faster than they can be posted."""
    what = "1 more Event" if events == 1 else f"{events} more Events"
    return Event(_KIND, type_, reason, f"{what} with this reason, on other objects: too many at a time to post each")
