"""The operator's conditions of a NodeDevice: Advertised, Conflict, AgentReady, and their summary Ready; and Events about them.

Ready is what a pod needs: all of it is in place. It is never Unknown, and its reason names the first thing that is missing. A
silent agent comes before all others, as nothing else in the status can be trusted then; but not for an object without a Node, or
under a wrong name, which has no agent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from nodedevice_operator.agents.liveness import AgentState
from nodedevice_operator.capacity.decide import ResourceStatus
from nodedevice_operator.events.transitions import NEEDS_ATTENTION, NORMAL, WARNING, Event, about_node_device
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_NOTHING_HEALTHY = frozenset({Reason.NONE_HEALTHY, Reason.NO_DEVICES})
_WITHOUT_AGENT = frozenset({Reason.WRONG_NAME, Reason.NODE_MISSING})
_REJECTED = frozenset({Reason.WRITE_REFUSED, Reason.UPDATE_REFUSED})
# Reasons of Advertised with which the Node does not show the free devices, whether their agent is back or not.
_NOT_OFFERED = frozenset({Reason.FREE_WITHDRAWN, *_REJECTED})
# Characters of the API server's message about a rejection; a webhook may send any length.
_LONGEST_REJECTION = 1024
# Users who have only kubectl must not assume what this API server cannot do.
_UNGUARDED = (
    "; this API server has no MutatingAdmissionPolicy v1: while the node's agent is away, pods are kept from starting "
    "without their devices only where the runtime requires the plugin nodedevice"
)


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """What a condition should be. not_before: when the object that it is about was created; its transition cannot be earlier."""

    status: str
    reason: str
    message: str
    not_before: str = ""


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """A whole condition, as it is written."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    observed_generation: int


def desired(
    record: NodeDeviceRecord,
    status: ResourceStatus | None,
    agent: AgentState,
    *,
    lacks_policies: bool | None = False,
    rejection: str = "",
) -> Mapping[str, DesiredCondition]:
    """The operator's conditions of `record` as they should be, by type. Nothing volatile: each change of a number would be a write.

    status: None where the stored Advertised and Conflict hold; the record must have both then.
    lacks_policies: whether the API server cannot make pods wait for their node's agent; None where that is not known yet.
    rejection: why the write of the Node is rejected, in the API server's words; used where the status says that it is.
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
    """Whether conditions about its capacity are stored, so that they can hold."""
    return Condition.ADVERTISED in record.conditions and Condition.CONFLICT in record.conditions


def changed(record: NodeDeviceRecord, wanted: Mapping[str, DesiredCondition], now: str) -> tuple[ConditionValue, ...]:
    """All the operator's conditions, when any of them is not stored like that; () when there is nothing to write.

    now: the time in the API's own form, for those whose status changes.
    """
    values = tuple(_value(record, kind, wanted[kind], now) for kind in names.OPERATOR_CONDITIONS)
    return () if all(_is_stored(record, value) for value in values) else values


def agent_events(record: NodeDeviceRecord, written: Mapping[str, DesiredCondition]) -> Iterator[Event]:
    """Events about the agent: how `written` differs from what is stored in `record`.

    The stored condition decides, so that a restart, or another operator, reports nothing twice. Many agents that fall silent
    together are one Event elsewhere, and none here. A new agent is no return: it had no Lease until then (LeaseMissing), while
    the Lease of one that is gone has expired (LeaseExpired).
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
    stored = record.conditions[kind]
    return DesiredCondition(stored.status, stored.reason, stored.message)


def _advertised(
    record: NodeDeviceRecord, status: ResourceStatus, rejection: str, lacks_policies: bool | None
) -> DesiredCondition:
    if status.reason in _REJECTED:
        return _rejected(record, status, rejection)
    if status.reason == Reason.BY_KUBELET:
        return _by_kubelet(record, status)
    advertised = _shown(record, status) or _not_shown(record, status)
    if advertised.reason == Reason.ADVERTISED and _is_unguarded(record, lacks_policies):
        return replace(advertised, message=f"{advertised.message}{_UNGUARDED}")
    return advertised


def _rejected(record: NodeDeviceRecord, status: ResourceStatus, rejection: str) -> DesiredCondition:
    shown = "still shows its old value" if status.reason == Reason.UPDATE_REFUSED else "does not show this resource"
    words = rejection if len(rejection) <= _LONGEST_REJECTION else f"{rejection[:_LONGEST_REJECTION]}..."
    message = f"Node {record.node} {shown}: the write was rejected and is being retried: {words}"
    stored = record.conditions.get(Condition.ADVERTISED)
    if stored is not None and _without_numbers(stored.message) == _without_numbers(message):
        message = stored.message
    return DesiredCondition("False", status.reason, message)


def _without_numbers(message: str) -> list[str]:
    """Its words, but those that may differ between two tries for the same reason: an address with its port, a time, an ID."""
    return [word for word in message.split() if not any(map(str.isdigit, word))]


def _shown(record: NodeDeviceRecord, status: ResourceStatus) -> DesiredCondition | None:
    node = f"Node {record.node}"
    if status.reason == Reason.FREE_WITHDRAWN:
        message = f"{node} shows only devices in use, as the agent has been silent for too long; the others return with the agent"
        return DesiredCondition("True", Reason.FREE_WITHDRAWN, message)
    if status.is_advertised and status.reason == Reason.NOT_INJECTABLE:
        message = f"{node} shows only devices in use, as devices cannot reach containers there: see Injectable"
        return DesiredCondition("True", Reason.NOT_INJECTABLE, message)
    if status.is_advertised:
        message = f"{node} shows this resource in capacity and allocatable"
        return DesiredCondition("True", Reason.ADVERTISED, message)
    return None


def _not_shown(record: NodeDeviceRecord, status: ResourceStatus) -> DesiredCondition:
    node = f"Node {record.node}"
    right_name = names.node_device_name(record.node, record.resource)
    why = {
        Reason.ENDPOINT_GONE: "its device plugin is gone and no device is allocated",
        Reason.NOT_INJECTABLE: f"devices cannot reach containers of {node}: see Injectable",
        Reason.WRONG_NAME: (
            f"{record.resource} of {node} belongs in the NodeDevice {right_name}; this one is ignored: delete it"
        ),
        Reason.NODE_MISSING: f"there is no {node} with the uid of this object's owner",
        Reason.POLICY_PENDING: (
            "the policy that makes its pods wait for the agent is not in force yet; see the operator's log"
        ),
        Reason.FOREIGN_OWNER: f"{status.conflict_with} set this name on {node} first",
        Reason.CHANGED_REPEATEDLY: f"{status.conflict_with} keeps changing this name on {node}",
    }.get(status.reason, "nothing is known about its devices yet")
    return DesiredCondition("False", status.reason, why)


def _is_unguarded(record: NodeDeviceRecord, lacks_policies: bool | None) -> bool:
    if record.runtime != names.RUNTIME_NRI:
        return False
    if lacks_policies is None:
        # as it is stored: it is found out soon, and until then the condition is not written back and forth
        stored = record.conditions.get(Condition.ADVERTISED)
        return stored is not None and stored.message.endswith(_UNGUARDED)
    return lacks_policies


def _by_kubelet(record: NodeDeviceRecord, status: ResourceStatus) -> DesiredCondition:
    if status.is_advertised:
        message = f"the kubelet of Node {record.node} counts this resource itself, and the operator does not write it"
        return DesiredCondition("True", Reason.BY_KUBELET, message)
    message = f"the kubelet of Node {record.node} does not count this resource yet; it does at its next sync after the registration"
    return DesiredCondition("False", Reason.BY_KUBELET, message)


def _conflict(record: NodeDeviceRecord, status: ResourceStatus) -> DesiredCondition:
    if status.conflict_with is None:
        return DesiredCondition("False", Reason.NO_CONFLICT, "no other field manager sets this name on the Node")
    remedy = f"stop it, then remove {record.resource} from Node {record.node}'s status; it is advertised at once then"
    if status.conflict_reason == Reason.CHANGED_REPEATEDLY:
        remedy = "stop it; after a pause of ten minutes at most the operator takes the name back"
    message = f"{status.conflict_with} owns this name on the Node: {remedy}"
    return DesiredCondition("True", status.conflict_reason, message)


def _ready(
    record: NodeDeviceRecord, agent: DesiredCondition, advertised: DesiredCondition, conflict: DesiredCondition
) -> DesiredCondition:
    if advertised.reason in _WITHOUT_AGENT:
        return advertised
    if agent.status != "True":
        return DesiredCondition("False", agent.reason, agent.message)
    missing = _missing_of_agent(record)
    if missing is not None:
        return missing
    if conflict.status == "True":
        return DesiredCondition("False", conflict.reason, conflict.message)
    if advertised.status != "True":
        return DesiredCondition("False", advertised.reason, advertised.message)
    usable = DesiredCondition("True", Reason.READY, "pods can use this resource on this node")
    return _needs_attention(record) or usable


def _needs_attention(record: NodeDeviceRecord) -> DesiredCondition | None:
    """A Ready that is True with a problem: pods get devices, and not all is as it should be."""
    healthy = record.conditions.get(Condition.HEALTHY)
    if healthy is not None and healthy.status == "False":
        return DesiredCondition("True", healthy.reason, healthy.message)
    registered = record.conditions.get(Condition.REGISTERED)
    if registered is not None and registered.reason in NEEDS_ATTENTION:
        return DesiredCondition("True", registered.reason, registered.message)
    return None


def _missing_of_agent(record: NodeDeviceRecord) -> DesiredCondition | None:
    """The first of the agent's own conditions that keeps pods from their devices."""
    registered = record.conditions.get(Condition.REGISTERED)
    if registered is None:
        message = "the agent has not reported yet whether the device plugin runs"
        return DesiredCondition("False", Reason.DEVICE_LIST_PENDING, message)
    if registered.status != "True":
        return DesiredCondition("False", registered.reason, registered.message)
    healthy = record.conditions.get(Condition.HEALTHY)
    if healthy is not None and healthy.status == "False" and healthy.reason in _NOTHING_HEALTHY:
        return DesiredCondition("False", healthy.reason, healthy.message)
    injectable = record.conditions.get(Condition.INJECTABLE)
    if injectable is not None and injectable.status == "False":
        return DesiredCondition("False", injectable.reason, injectable.message)
    return None


def _value(record: NodeDeviceRecord, kind: str, wanted: DesiredCondition, now: str) -> ConditionValue:
    stored = record.conditions.get(kind)
    since = stored.since if stored is not None and stored.status == wanted.status else now
    since = max(since, wanted.not_before)
    return ConditionValue(kind, wanted.status, wanted.reason, wanted.message, since, record.generation)


def _is_stored(record: NodeDeviceRecord, value: ConditionValue) -> bool:
    stored = record.conditions.get(value.type)
    return stored is not None and value == ConditionValue(
        value.type, stored.status, stored.reason, stored.message, stored.since, stored.observed_generation
    )
