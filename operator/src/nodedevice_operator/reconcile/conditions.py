"""The operator's conditions of a NodeDevice: Advertised, Conflict, AgentReady, and their summary Ready; and Events about them.

Ready is what a pod needs: all of it is in place. It is never Unknown, and its reason names the first thing that is missing. A
silent agent comes before all others, as nothing else in the status can be trusted then; but not for an object without a Node, or
under a wrong name, which has no agent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import Condition, Reason

from nodedevice_operator.capacity.decide import ResourceStatus
from nodedevice_operator.leases.agent_liveness import AgentState
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.aggregates import some
from nodedevice_operator.observability.events import NEEDS_ATTENTION, NORMAL, WARNING, Event, about_node_device
from nodedevice_operator.requiredplugins.policy import MOST_CHARACTERS, MOST_NAMES_OF_NODE

NOTHING_HEALTHY = frozenset({Reason.NONE_HEALTHY, Reason.NO_DEVICES})
_WITHOUT_AGENT = frozenset({Reason.WRONG_NAME, Reason.NODE_MISSING})
REJECTED = frozenset({Reason.WRITE_REFUSED, Reason.UPDATE_REFUSED})
# Reasons of Advertised with which the Node does not show the free devices, whether their agent is back or not.
_NOT_OFFERED = frozenset({Reason.FREE_WITHDRAWN, *REJECTED})
# The field manager of every kubelet.
_KUBELET: Final = "kubelet"
# Characters of the API server's message about a rejection; a webhook may send any length.
LONGEST_REJECTION = 1024
# Users who have only kubectl must not assume what this API server cannot do.
_UNGUARDED = (
    "; this API server has no MutatingAdmissionPolicy v1: while the node's agent is away, pods are kept from starting "
    "without their devices only where the runtime requires the plugin nodedevice"
)
_LARGEST: Final = (
    ": besides the parts in use only the most that one device has free (advertise: Largest), so a pod whose containers "
    "need parts of two devices may never be scheduled"
)
# The message of Advertised by its reason, while the Node shows the resource, and while it does not.
SHOWN: Final = {
    Reason.ADVERTISED: "{node} shows this resource in capacity and allocatable",
    Reason.BY_KUBELET: "the kubelet of {node} counts this resource itself, and the operator does not write it",
    Reason.SERVED_BY_KUBELET: "the kubelet of {node} serves this resource and counts it; it is only shown here",
    Reason.SERVED_BY_DRA: (
        # the same for all of a fleet, as there may be many
        "a DRA driver offers these devices in ResourceSlices of the node, and the scheduler gives them out by claims; they are "
        "only shown here"
    ),
    Reason.FREE_WITHDRAWN: (
        "{node} shows only devices in use, as the agent has been silent for too long; the others return with the agent"
    ),
    Reason.NOT_INJECTABLE: "{node} shows only devices in use, as devices cannot reach containers there: see Injectable",
}
NOT_SHOWN: Final = {
    Reason.BY_KUBELET: (
        "the kubelet of {node} does not count this resource yet; it does at its next sync after the registration"
    ),
    Reason.SERVED_BY_KUBELET: "{node} does not show this resource, which its kubelet serves",
    Reason.SERVED_BY_DRA: (
        "the DRA driver has no ResourceSlice of {node} any more, so the scheduler allocates none of its devices: check the "
        "driver's pod there"
    ),
    Reason.NAME_RESERVED: "{resource} cannot be a resource of {node}: {problem}; it is only shown here",
    Reason.ENDPOINT_GONE: "its device plugin is gone and no device is allocated",
    Reason.NOT_CONFIGURED: "nothing configures its device plugin on {node} any more, and no device is allocated",
    Reason.PLACE_TAKEN: "another resource name of {node} has its place, and no device is allocated",
    Reason.NOT_INJECTABLE: "devices cannot reach containers of {node}: see Injectable",
    Reason.WRONG_NAME: "{resource} of {node} belongs in the NodeDevice {right_name}; this one is ignored: delete it",
    Reason.NODE_MISSING: "{node} with the uid of this object's owner does not exist",
    Reason.POLICY_PENDING: (
        "the policy that makes its pods wait for the agent is not in force yet; see the operator's log"
    ),
    Reason.TOO_MANY_NAMES: (
        f"the policy that makes its pods wait for the agent has no room for it: {MOST_NAMES_OF_NODE} names of a node and "
        f"{MOST_CHARACTERS:,} characters in all, the oldest NodeDevices first; delete unneeded ones"
    ),
    Reason.NAME_EXCLUDED: (
        "requiredPlugins.names keeps {resource} out of the policy that makes its pods wait for the agent: add it there"
    ),
    Reason.FOREIGN_OWNER: "{owner} set this name on {node} first",
    Reason.CHANGED_REPEATEDLY: "{owner} keeps changing this name on {node}",
}


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """A desired condition. not_before: when its object was created; the transition cannot be earlier."""

    status: str
    reason: str
    message: str
    not_before: str = ""


def desired(
    record: NodeDeviceRecord,
    status: ResourceStatus | None,
    agent: AgentState,
    *,
    lacks_policies: bool | None = False,
    rejection: str = "",
) -> Mapping[str, DesiredCondition]:
    """The desired conditions of `record`, by type. Messages have no volatile numbers: each change would be a write.

    status: None keeps the stored Advertised and Conflict; the record must have both then.
    lacks_policies: whether the API server cannot make pods wait for their node's agent; None if unknown yet.
    rejection: the API server's message for a rejected write of the Node; used if the status reports one.
    """
    if status is None:
        advertised, conflict = _as_stored(record, Condition.ADVERTISED), _as_stored(record, Condition.CONFLICT)
    else:
        advertised = _advertised(record, status, rejection, lacks_policies)
        advertised = replace(advertised, not_before=status.not_before)
        conflict = replace(_conflict(record, status), not_before=status.not_before)
    agent_ready = DesiredCondition(agent.status, agent.reason, agent.message)
    return {
        Condition.ADVERTISED: advertised,
        Condition.CONFLICT: conflict,
        Condition.AGENT_READY: agent_ready,
        Condition.READY: _ready(record, agent_ready, advertised, conflict),
    }


def can_stay(record: NodeDeviceRecord) -> bool:
    """Whether conditions about its capacity are stored, so that they can be kept."""
    return Condition.ADVERTISED in record.conditions and Condition.CONFLICT in record.conditions


def changed(record: NodeDeviceRecord, wanted: Mapping[str, DesiredCondition], now: str) -> dict[str, StoredCondition]:
    """All the operator's conditions by type if any differs from the stored one, else {}. now: the API's timestamp."""
    values = {kind: _value(record, kind, wanted[kind], now) for kind in names.OPERATOR_CONDITIONS}
    return {} if values.items() <= record.conditions.items() else values


def agent_events(record: NodeDeviceRecord, written: Mapping[str, DesiredCondition]) -> Iterator[Event]:
    """Events about the agent: the differences between `written` and the stored conditions of `record`.

    The stored condition decides, so that a restart, or another operator, reports nothing twice. Many agents that fall silent
    together get one Event elsewhere, and none here. A new agent (LeaseMissing) does not count as a return; only an agent whose
    Lease expired (LeaseExpired) does.
    """
    agent, advertised = record.conditions.get(Condition.AGENT_READY), record.conditions.get(Condition.ADVERTISED)
    if agent is None or advertised is None:
        return
    about, where = about_node_device(record), f"{record.resource} on {record.node}"
    now = written[Condition.AGENT_READY]
    was_withdrawn = advertised.reason == Reason.FREE_WITHDRAWN
    if agent.status == "True" and now.reason == Reason.LEASE_EXPIRED:
        yield Event(about, WARNING, now.reason, f"{where}: {now.message}")
    if now.status == "True" and agent.status != "True" and (agent.reason == Reason.LEASE_EXPIRED or was_withdrawn):
        is_shown = written[Condition.ADVERTISED].reason not in _NOT_OFFERED
        back = "; its free devices are offered again" if was_withdrawn and is_shown else ""
        yield Event(about, NORMAL, Reason.LEASE_RENEWED, f"{where}: {now.message} again{back}")
    if written[Condition.ADVERTISED].reason == Reason.FREE_WITHDRAWN and not was_withdrawn:
        free = "1 free device is" if record.available == 1 else f"{record.available} free devices are"
        numbers = f"{free} no longer offered, devices in use stay ({record.allocated})"
        message = f"{where}: {numbers}; all are offered again when the agent is back"
        yield Event(about, WARNING, Reason.FREE_WITHDRAWN, message)


def _as_stored(record: NodeDeviceRecord, kind: str) -> DesiredCondition:
    return _like(record.conditions[kind], record.conditions[kind].status)


def _like(cause: DesiredCondition | StoredCondition, status: str) -> DesiredCondition:
    """A condition with that status, for the same reason."""
    return DesiredCondition(status, cause.reason, cause.message)


def _advertised(
    record: NodeDeviceRecord, status: ResourceStatus, rejection: str, lacks_policies: bool | None
) -> DesiredCondition:
    if status.reason in REJECTED:
        return _rejected(record, status, rejection)
    facts = {
        "node": f"Node {record.node}",
        "resource": record.resource,
        "right_name": names.node_device_name(record.node, record.resource),
        "owner": status.conflict_with,
        "problem": resource_name_problem(record.resource),
    }
    if not (status.is_advertised or status.reason == Reason.FREE_WITHDRAWN):
        message = NOT_SHOWN.get(status.reason, "nothing is known about its devices yet")
        return DesiredCondition("False", status.reason, message.format(**facts))
    reason = status.reason if status.reason in SHOWN else Reason.ADVERTISED
    unguarded = _UNGUARDED if reason == Reason.ADVERTISED and _is_unguarded(record, lacks_policies) else ""
    largest = _LARGEST if reason == Reason.ADVERTISED and record.largest_available is not None else ""
    return DesiredCondition("True", reason, SHOWN[reason].format(**facts) + largest + unguarded)


def _rejected(record: NodeDeviceRecord, status: ResourceStatus, rejection: str) -> DesiredCondition:
    shown = "still shows its old value" if status.reason == Reason.UPDATE_REFUSED else "does not show this resource"
    words = rejection if len(rejection) <= LONGEST_REJECTION else f"{rejection[:LONGEST_REJECTION]}..."
    message = f"Node {record.node} {shown}: the write was rejected and is being retried: {words}"
    stored = record.conditions.get(Condition.ADVERTISED)
    if stored is not None and _without_numbers(stored.message) == _without_numbers(message):
        message = stored.message
    return DesiredCondition("False", status.reason, message)


def _without_numbers(message: str) -> list[str]:
    """The words of a message without volatile ones (an address with its port, a time, an ID), to compare two tries."""
    return [word for word in message.split() if not any(map(str.isdigit, word))]


def _is_unguarded(record: NodeDeviceRecord, lacks_policies: bool | None) -> bool:
    if record.delivery != names.DELIVERY_NRI:
        return False
    if lacks_policies is None:
        # keep the stored one until discovery has finished, so that the condition does not flap
        stored = record.conditions.get(Condition.ADVERTISED)
        return stored is not None and stored.message.endswith(_UNGUARDED)
    return lacks_policies


def _conflict(record: NodeDeviceRecord, status: ResourceStatus) -> DesiredCondition:
    if status.conflict_with is None:
        return DesiredCondition("False", Reason.NO_CONFLICT, "no other field manager sets this name on the Node")
    if status.reason in (Reason.ENDPOINT_GONE, Reason.NOT_CONFIGURED, Reason.PLACE_TAKEN):
        message = f"{status.conflict_with} sets this name on the Node, and no device plugin serves it here any more"
        return DesiredCondition("True", status.conflict_reason, message)
    remedy = f"stop it, then remove {record.resource} from Node {record.node}'s status; it is advertised at once then"
    if status.conflict_reason == Reason.CHANGED_REPEATEDLY:
        remedy = "stop it; after a pause of ten minutes at most the operator restores the name"
    elif status.conflict_with == _KUBELET:
        remedy = (
            "the kubelet keeps it for five minutes after its device plugin has stopped; "
            f"then remove {record.resource} from Node {record.node}'s status, and it is advertised at once"
        )
    message = f"{status.conflict_with} owns this name on the Node: {remedy}"
    return DesiredCondition("True", status.conflict_reason, message)


def _ready(
    record: NodeDeviceRecord, agent: DesiredCondition, advertised: DesiredCondition, conflict: DesiredCondition
) -> DesiredCondition:
    if advertised.reason in _WITHOUT_AGENT:
        return advertised
    registered, unhealthy = record.conditions.get(Condition.REGISTERED), _failed(record, Condition.HEALTHY)
    if agent.status != "True":
        return _like(agent, "False")
    if registered is None:
        message = "the agent has not reported yet whether the device plugin runs"
        return DesiredCondition("False", Reason.DEVICE_LIST_PENDING, message)
    missing: tuple[DesiredCondition | StoredCondition | None, ...] = (
        registered if registered.status != "True" else None,
        unhealthy if unhealthy is not None and unhealthy.reason in NOTHING_HEALTHY else None,
        _failed(record, Condition.INJECTABLE),
        _failed(record, Condition.WATCHES_CURRENT),
        conflict if conflict.status == "True" else None,
        advertised if advertised.status != "True" else None,
        _all_cordoned(record) if 0 < record.total <= record.cordoned and not record.is_only_shown else None,
    )
    for cause in missing:
        if cause is not None:
            return _like(cause, "False")
    # pods get devices, but something needs attention
    attention = unhealthy or (registered if registered.reason in NEEDS_ATTENTION else None)
    if attention is not None:
        return _like(attention, "True")
    message = "pods can use this resource on this node"
    if record.reason_of(Condition.INJECTABLE) == Reason.RUNTIME_NONE:
        # without injection at an administrator's request
        message = record.conditions[Condition.INJECTABLE].message
    return DesiredCondition("True", Reason.READY, message)


def _all_cordoned(record: NodeDeviceRecord) -> DesiredCondition:
    by = some(sorted(frozenset(record.cordoned_by.values())))
    cordoned = f"every device is cordoned in spec.cordonedDevices{f' (by {by})' if by else ''}"
    return DesiredCondition("False", Reason.ALL_CORDONED, f"{cordoned}, so no more pods get one")


def _failed(record: NodeDeviceRecord, kind: str) -> StoredCondition | None:
    return record.conditions[kind] if record.is_condition(kind, "False") else None


def _value(record: NodeDeviceRecord, kind: str, wanted: DesiredCondition, now: str) -> StoredCondition:
    stored = record.conditions.get(kind)
    since = stored.since if stored is not None and stored.status == wanted.status else now
    since = max(since, wanted.not_before)
    return StoredCondition(wanted.status, wanted.reason, wanted.message, since, record.generation)
