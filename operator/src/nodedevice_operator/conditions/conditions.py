"""The operator's four conditions of a NodeDevice: Advertised, Conflict, AgentReady, and their summary Ready.

Ready is what a pod cares about: all of it is there. It is never Unknown, and its reason names the first thing that is
missing, a dead agent before all others, as nothing else it says can be believed then; but for an object of no Node, or under
a wrong name, for which no agent speaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from nodedevice_operator.agents.liveness import AgentState
from nodedevice_operator.capacity.decide import Verdict
from nodedevice_operator.events.transitions import TO_BE_MENDED
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_NOTHING_HEALTHY = frozenset({Reason.NONE_HEALTHY, Reason.NO_DEVICES})
_NOBODYS = frozenset({Reason.WRONG_NAME, Reason.NODE_MISSING})
_REFUSED = frozenset({Reason.WRITE_REFUSED, Reason.UPDATE_REFUSED})
# Characters of what the API server says of a refusal; a webhook may say anything.
_LONGEST_REFUSAL = 1024
# Who has only kubectl must not take for granted what this API server cannot do.
_UNGUARDED = (
    "; this API server has no MutatingAdmissionPolicy v1: while the node's agent is away, pods are kept from starting "
    "without their devices only where the runtime requires the plugin nodedevice"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a condition is to say. not_before: when what it speaks of was made; it cannot have said so any earlier."""

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


def answers(
    record: NodeDeviceRecord,
    verdict: Verdict | None,
    agent: AgentState,
    *,
    lacks_policies: bool | None = False,
    refusal: str = "",
) -> Mapping[str, Answer]:
    """What the operator's conditions of `record` are to say, by type. Nothing volatile: a number would be a write each.

    verdict: None where what is stored of Advertised and Conflict holds on; the record must have both then.
    lacks_policies: whether the API server cannot make pods wait for their node's agent; None where that is not known yet.
    refusal: why the write of the Node is refused, in the API server's words; said where the verdict is that it is.
    """
    if verdict is None:
        advertised, conflict = _as_stored(record, Condition.ADVERTISED), _as_stored(record, Condition.CONFLICT)
    else:
        advertised = _of_capacity(record, verdict, refusal, lacks_policies)
        advertised = replace(advertised, not_before=verdict.not_before)
        conflict = replace(_conflict(record, verdict), not_before=verdict.not_before)
    agent_ready = Answer(agent.status, agent.reason, agent.message)
    return {
        Condition.ADVERTISED: advertised,
        Condition.CONFLICT: conflict,
        Condition.AGENT_READY: agent_ready,
        Condition.READY: _ready(record, agent_ready, advertised, conflict),
    }


def can_stay(record: NodeDeviceRecord) -> bool:
    """Whether there is anything stored of its capacity that could hold on."""
    return Condition.ADVERTISED in record.conditions and Condition.CONFLICT in record.conditions


def _as_stored(record: NodeDeviceRecord, kind: str) -> Answer:
    stored = record.conditions[kind]
    return Answer(stored.status, stored.reason, stored.message)


def _of_capacity(record: NodeDeviceRecord, verdict: Verdict, refusal: str, lacks_policies: bool | None) -> Answer:
    if verdict.reason in _REFUSED:
        return _refused(record, verdict, refusal)
    advertised = _advertised(record, verdict)
    if advertised.reason == Reason.ADVERTISED and _is_unguarded(record, lacks_policies):
        return replace(advertised, message=f"{advertised.message}{_UNGUARDED}")
    return advertised


def _refused(record: NodeDeviceRecord, verdict: Verdict, refusal: str) -> Answer:
    shown = (
        "shows this resource as it was" if verdict.reason == Reason.UPDATE_REFUSED else "does not show this resource"
    )
    words = refusal if len(refusal) <= _LONGEST_REFUSAL else f"{refusal[:_LONGEST_REFUSAL]}..."
    message = f"Node {record.node} {shown}, as its write is refused and repeated: {words}"
    stored = record.conditions.get(Condition.ADVERTISED)
    if stored is not None and _without_numbers(stored.message) == _without_numbers(message):
        message = stored.message
    return Answer("False", verdict.reason, message)


def _without_numbers(message: str) -> list[str]:
    """Its words but those that may differ with each try though the refusal is the same: an address with its port, a time, an ID."""
    return [word for word in message.split() if not any(map(str.isdigit, word))]


def changed(record: NodeDeviceRecord, wanted: Mapping[str, Answer], now: str) -> tuple[ConditionValue, ...]:
    """All the operator's conditions, when any of them is not stored like that; () when there is nothing to write.

    now: the time in the API's own form, for those whose status changes.
    """
    values = tuple(_value(record, kind, wanted[kind], now) for kind in names.OPERATOR_CONDITIONS)
    return () if all(_is_stored(record, value) for value in values) else values


def _advertised(record: NodeDeviceRecord, verdict: Verdict) -> Answer:
    if verdict.reason == Reason.FREE_WITHDRAWN:
        shown = f"Node {record.node} shows only what pods hold, as the agent has been silent for too long; all comes back with it"
        return Answer("True", Reason.FREE_WITHDRAWN, shown)
    if verdict.reason == Reason.BY_KUBELET:
        return _by_kubelet(record, verdict)
    if verdict.is_advertised and verdict.reason == Reason.NOT_INJECTABLE:
        shown = (
            f"Node {record.node} shows only what pods hold, as devices cannot reach containers there: see Injectable"
        )
        return Answer("True", Reason.NOT_INJECTABLE, shown)
    if verdict.is_advertised:
        return Answer("True", Reason.ADVERTISED, f"Node {record.node} shows this resource in capacity and allocatable")
    why = {
        Reason.ENDPOINT_GONE: "its device plugin is gone and nobody holds a device",
        Reason.NOT_INJECTABLE: f"devices cannot reach containers of Node {record.node}: see Injectable",
        Reason.WRONG_NAME: _wrong_name(record),
        Reason.NODE_MISSING: f"no Node {record.node} with the uid of this object's owner is there",
        Reason.POLICY_PENDING: "the policy that makes its pods wait for the agent is not in force yet; see the operator's log",
        Reason.FOREIGN_OWNER: f"{verdict.conflict_with} set this name on Node {record.node} first",
        Reason.CHANGED_REPEATEDLY: f"{verdict.conflict_with} keeps changing this name on Node {record.node}",
    }.get(verdict.reason, "nothing is known of its devices yet")
    return Answer("False", verdict.reason, why)


def _is_unguarded(record: NodeDeviceRecord, lacks_policies: bool | None) -> bool:
    if record.runtime != names.RUNTIME_NRI:
        return False
    if lacks_policies is None:
        # as it was told before: it is found out soon, and until then no condition is written back and forth
        stored = record.conditions.get(Condition.ADVERTISED)
        return stored is not None and stored.message.endswith(_UNGUARDED)
    return lacks_policies


def _wrong_name(record: NodeDeviceRecord) -> str:
    right = names.node_device_name(record.node, record.resource)
    return f"{record.resource} of Node {record.node} is told by the NodeDevice {right}; this one counts for nothing: delete it"


def _by_kubelet(record: NodeDeviceRecord, verdict: Verdict) -> Answer:
    if verdict.is_advertised:
        shown = f"the kubelet of Node {record.node} counts this resource itself, and nobody else writes it"
        return Answer("True", Reason.BY_KUBELET, shown)
    why = f"the kubelet of Node {record.node} does not count this resource yet; it does at its next sync after the registration"
    return Answer("False", Reason.BY_KUBELET, why)


def _conflict(record: NodeDeviceRecord, verdict: Verdict) -> Answer:
    if verdict.conflict_with is None:
        return Answer("False", Reason.NO_CONFLICT, "nobody else sets this name on the Node")
    remedy = f"stop it, then take {record.resource} out of Node {record.node}'s status; it is advertised at once then"
    if verdict.conflict_reason == Reason.CHANGED_REPEATEDLY:
        remedy = "stop it; after a pause, of ten minutes at most, the name is taken back"
    return Answer("True", verdict.conflict_reason, f"{verdict.conflict_with} owns this name on the Node: {remedy}")


def _ready(record: NodeDeviceRecord, agent: Answer, advertised: Answer, conflict: Answer) -> Answer:
    if advertised.reason in _NOBODYS:
        return advertised
    if agent.status != "True":
        return Answer("False", agent.reason, agent.message)
    missing = _missing_of_agent(record)
    if missing is not None:
        return missing
    if conflict.status == "True":
        return Answer("False", conflict.reason, conflict.message)
    if advertised.status != "True":
        return Answer("False", advertised.reason, advertised.message)
    return _to_be_mended(record) or Answer("True", Reason.READY, "pods can use this resource on this node")


def _to_be_mended(record: NodeDeviceRecord) -> Answer | None:
    """What a Ready that is True has to say all the same: pods get devices, and not all is as it should be."""
    healthy = record.conditions.get(Condition.HEALTHY)
    if healthy is not None and healthy.status == "False":
        return Answer("True", healthy.reason, healthy.message)
    registered = record.conditions.get(Condition.REGISTERED)
    if registered is not None and registered.reason in TO_BE_MENDED:
        return Answer("True", registered.reason, registered.message)
    return None


def _missing_of_agent(record: NodeDeviceRecord) -> Answer | None:
    """The first of the agent's own conditions that keeps pods from their devices."""
    registered = record.conditions.get(Condition.REGISTERED)
    if registered is None:
        return Answer("False", Reason.DEVICE_LIST_PENDING, "the agent has not said whether the device plugin runs")
    if registered.status != "True":
        return Answer("False", registered.reason, registered.message)
    healthy = record.conditions.get(Condition.HEALTHY)
    if healthy is not None and healthy.status == "False" and healthy.reason in _NOTHING_HEALTHY:
        return Answer("False", healthy.reason, healthy.message)
    injectable = record.conditions.get(Condition.INJECTABLE)
    if injectable is not None and injectable.status == "False":
        return Answer("False", injectable.reason, injectable.message)
    return None


def _value(record: NodeDeviceRecord, kind: str, answer: Answer, now: str) -> ConditionValue:
    stored = record.conditions.get(kind)
    since = stored.since if stored is not None and stored.status == answer.status else now
    since = max(since, answer.not_before)
    return ConditionValue(kind, answer.status, answer.reason, answer.message, since, record.generation)


def _is_stored(record: NodeDeviceRecord, value: ConditionValue) -> bool:
    stored = record.conditions.get(value.type)
    return stored is not None and (
        stored.status,
        stored.reason,
        stored.message,
        stored.since,
        stored.observed_generation,
    ) == (
        value.status,
        value.reason,
        value.message,
        value.since,
        value.observed_generation,
    )
