"""Decides which extended resources a Node should show, and which apply brings it there.

The agent's report in a NodeDevice decides whether and with how many devices a resource is advertised: allocated + reserved +
available. The module ownership decides who owns the name on that Node: a name that another writer set first, or keeps changing, is
not written. Source: server-side apply's ownership rules, measured on nodes/status of Kubernetes 1.37.

All names that the operator owns on a Node go into one apply under its own field manager. A name missing from it is removed from the
Node, so every NodeDevice of the Node must be known first. The free devices of an agent that has been silent for too long, or that
cannot bring devices into containers, are withdrawn. A name whose NodeDevice was deleted keeps its number for some seconds: its
agent recreates the object.

While the API server rejects the write of a Node, the status of its resources shows it. The stored status must keep the ownership of
a name: a later operator restores only names that it owned.

A NodeDevice's numbers may contradict its own lists, and a truncated list proves nothing about missing devices. The larger count of
devices in use wins: capacity must not fall below it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from nodedevice_api import names

from nodedevice_operator.capacity.changes import number_events
from nodedevice_operator.capacity.ownership import (
    DesiredResource,
    NodeHistory,
    OwnershipDecision,
    decide_ownership,
    given_up_at,
    history_of,
    hold,
    leave_out,
    ownership_events,
    with_conflict,
    with_repair,
    without_conflict,
)
from nodedevice_operator.contention import Contention
from nodedevice_operator.leases.agent_liveness import ALIVE, AgentState
from nodedevice_operator.objects.node import NO_RESOURCE, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition, is_real
from nodedevice_operator.observability.events import Event

# The Node shows the right number: all allocatable devices, or only the devices in use.
_SHOWN: Final = frozenset({names.Reason.ADVERTISED, names.Reason.FREE_WITHDRAWN, names.Reason.NOT_INJECTABLE})
# By status.agent.servedBy, unless the agent serves the resource.
_GIVEN_OUT_BY: Final = {
    names.SERVED_BY_KUBELET: names.Reason.SERVED_BY_KUBELET,
    names.SERVED_BY_DRA: names.Reason.SERVED_BY_DRA,
}
# Reasons of an Advertised that is False, of names that the operator owns: only these are restored after contention.
_STILL_OURS: Final = frozenset({names.Reason.UPDATE_REFUSED, names.Reason.CHANGED_REPEATEDLY})
_MOST_CONTRADICTIONS: Final = 3


def is_reported(node: NodeRecord, record: NodeDeviceRecord) -> bool:
    """Whether it is about this very Node, and its agent has reported. Otherwise nothing would justify a change."""
    return record.owner_uid == node.uid and record.has_status


def _why_left_out(record: NodeDeviceRecord) -> str | None:
    """Why its name is not ours to show: others count it or give its devices out, or no device can be had and none is in use."""
    if record.is_only_shown:
        return _GIVEN_OUT_BY.get(record.served_by, names.Reason.NAME_RESERVED)
    if record.delivery == names.DELIVERY_KUBELET:
        return names.Reason.BY_KUBELET
    if record.allocated + record.reserved > 0:
        return None
    if record.endpoint == "Gone":
        return record.ended or names.Reason.ENDPOINT_GONE
    return None if is_injectable(record) else names.Reason.NOT_INJECTABLE


def desired_count(record: NodeDeviceRecord, *, is_withdrawn: bool = False) -> int:
    """The number of devices that the scheduler may count on. Without the reserved ones the kubelet would fail a bound pod for good.

    is_withdrawn: the agent that would allocate the free ones is gone, as far as can be known.
    """
    in_use = record.allocated + record.reserved
    return in_use if is_withdrawn else in_use + plausible_available(record)


def is_withdrawn(record: NodeDeviceRecord, agent: AgentState) -> bool:
    """Whether its free devices are not offered because its agent is silent: now, or since any operator found it so."""
    was_withdrawn = record.reason_of(names.Condition.ADVERTISED) == names.Reason.FREE_WITHDRAWN
    # only the agent's return ends that
    return agent.is_withdrawn or (was_withdrawn and agent.status != "True")


def is_injectable(record: NodeDeviceRecord) -> bool:
    """Unknown does not withdraw devices: the node may inject none on purpose."""
    return not record.is_condition(names.Condition.INJECTABLE, "False")


def plausible_available(record: NodeDeviceRecord) -> int:
    """How many devices are free, as far as the number and the list of devices agree; of parts, perhaps of one device alone."""
    free, available = _listed_free(record), record.available
    if record.largest_available is not None:
        available = min(available, record.largest_available)
    return available if free is None else min(available, free)


def contradictions(record: NodeDeviceRecord) -> tuple[str, ...]:
    return tuple(islice(_contradictions(record), _MOST_CONTRADICTIONS))


def _contradictions(record: NodeDeviceRecord) -> Iterator[str]:
    if record.served_by == names.SERVED_BY_DRA:
        return  # pods share claims, and admin access takes nothing: each device may be in many rows
    free = _listed_free(record)
    if free is not None and record.available > free:
        yield f"available is {record.available}, but {free} of the devices listed are healthy and not allocated"
    current = [allocation for allocation in record.allocations if not allocation.is_releasing]
    held = {device_id for allocation in current for device_id in allocation.devices}
    number = len({i for a in current for i in a.device_ids}) + sum(p.parts for a in current for p in a.parts)
    is_whole = not record.allocations_omitted and not any(allocation.omitted for allocation in record.allocations)
    if record.listed and is_whole and record.allocated > number:
        yield f"allocated is {record.allocated}, but {number} devices are listed as allocated"
    if record.listed and not record.devices_omitted:
        for device_id in sorted(held - frozenset(record.listed)):
            yield f"{device_id} is allocated, but is not among the devices"
    holders: dict[str, str] = {}
    for allocation in record.allocations:
        for device_id in allocation.device_ids:
            if holders.setdefault(device_id, allocation.pod_uid) != allocation.pod_uid:
                yield f"{device_id} is allocated to two pods, {holders[device_id]} and {allocation.pod_uid}"


def _listed_free(record: NodeDeviceRecord) -> int | None:
    """How many listed devices are healthy and not allocated; None where the list is truncated."""
    if not record.listed or record.devices_omitted:
        return None
    if record.parts:
        others = sum(i not in record.parts and i not in record.devices for i in record.listed)
        return others + sum(max(parts.healthy - parts.allocated, 0) for parts in record.parts.values())
    # `devices` holds the allocated and the unhealthy devices
    return len(record.listed) - len(record.devices)


@dataclass(frozen=True, slots=True)
class Apply:
    """One server-side apply of capacity and allocatable; names that are not in it are removed from the Node."""

    numbers: Mapping[str, int]
    is_forced: bool


def is_loss(node: NodeRecord, apply: Apply) -> bool:
    """Whether the Node shows fewer devices after it. Such a write comes first: a pod could be bound to a missing device."""
    ours = {name: seen.capacity or 0 for name, seen in node.resources.items() if seen.is_ours}
    return any(apply.numbers.get(name, 0) < number for name, number in ours.items())


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """`conflict_with` names the other writer. not_before: when the Node was created, in the API's own form."""

    is_advertised: bool
    reason: str
    conflict_with: str | None = None
    conflict_reason: str = names.Reason.NO_CONFLICT
    not_before: str = ""


@dataclass(frozen=True, slots=True)
class CapacityDecision:
    """`history`, `events`, `changes` and `repairs` (their causes) count only once `apply` succeeded. changes: routine Events.

    due_at: when a conflict is retried, or a lost name given up, in monotonic seconds.
    """

    apply: Apply | None
    statuses: Mapping[str, ResourceStatus]
    history: NodeHistory
    events: tuple[Event, ...] = ()
    repairs: tuple[str, ...] = ()
    due_at: float | None = None
    changes: tuple[Event, ...] = ()


def decide(
    node: NodeRecord,
    node_devices: Iterable[NodeDeviceRecord],
    before: NodeHistory | None,
    now: float,
    agent: AgentState = ALIVE,
    unguarded: Mapping[str, str] = MappingProxyType({}),
) -> CapacityDecision:
    """Decide what to write into the status of `node`.

    node_devices: every NodeDevice that names this node; never a part of them.
    now: monotonic seconds. agent: whether the node's agent lives.
    unguarded: resources that must not be new on a Node, as nothing would make their pods wait for the agent; and why, one word.
    """
    history = history_of(node.uid, before)
    records = sorted(filter(is_real, node_devices), key=lambda record: record.resource)
    decisions = [_guarded(_decide_one(node, record, history, agent, now), unguarded) for record in records]
    shown = frozenset(name for name, seen in node.resources.items() if seen.is_ours)
    lost = (shown | history.applied) - {record.resource for record in records}
    # a name that lost its NodeDevice before keeps its time
    history = replace(history, lost={name: history.lost.get(name, now) for name in lost})
    over = frozenset(name for name in history.lost if now >= given_up_at(history, name))
    waiting = history.lost.keys() - over
    held = (hold(name, node.resources[name], names.Reason.NODE_MISSING) for name in sorted(waiting & shown))
    kept = {each.resource: each for each in (*decisions, *held) if each.number is not None}
    given_up = shown - kept.keys() - waiting
    apply = _apply(kept, given_up)
    changes: Iterable[Event] = ()
    if apply is not None:
        of_resource = {record.resource: record for record in records}
        known = {each.resource: each for each in decisions}
        changes = number_events(node, of_resource, known, apply.numbers, given_up)
    for decision in decisions:
        history = _remember(history, decision, now)
    # the kubelet owns the number that it counts now, even if the operator owned the name before
    parted = given_up | over | {each.resource for each in decisions if each.reason in names.NEVER_WRITTEN}
    history = replace(
        history,
        applied=(history.applied - parted) | frozenset(apply.numbers if apply else kept),
        withdrawn=(history.withdrawn | parted) - kept.keys(),
    )
    pairs = list(zip(records, decisions, strict=True))
    return CapacityDecision(
        apply=apply,
        statuses={each.resource: _status(node, record, each) for record, each in pairs},
        history=history,
        events=tuple(event for record, each in pairs for event in ownership_events(node, record, each)),
        repairs=tuple(each.drift.cause for each in decisions if each.drift),
        due_at=_due_at(history, decisions, waiting),
        changes=tuple(changes),
    )


def _due_at(history: NodeHistory, decisions: Iterable[OwnershipDecision], waiting: Iterable[str]) -> float | None:
    conflicts = [history.conflicts[each.resource] for each in decisions if each.conflict is not None]
    due = [conflict.retry_at for conflict in conflicts if conflict.retry_at is not None]
    due += [given_up_at(history, name) for name in waiting]
    return min(due, default=None)


def was_advertised(node: NodeRecord, record: NodeDeviceRecord) -> bool:
    """Whether we advertised it there, by its stored condition; not what the kubelet counted before the agent took over."""
    stored = _stored(node, record, names.Condition.ADVERTISED)
    return stored is not None and stored.status == "True" and stored.reason not in names.NEVER_WRITTEN


def _decide_one(
    node: NodeRecord, record: NodeDeviceRecord, history: NodeHistory, agent: AgentState, now: float
) -> OwnershipDecision:
    seen = node.resources.get(record.resource, NO_RESOURCE)
    if not is_reported(node, record):
        is_of_node = record.owner_uid == node.uid
        return hold(record.resource, seen, names.Reason.NOT_ADVERTISED if is_of_node else names.Reason.NODE_MISSING)
    stored = _stored(node, record, names.Condition.CONFLICT)
    is_conflict_stored = stored is not None and stored.status == "True"
    stored_conflict = stored.reason if is_conflict_stored and stored else None
    reason = _why_left_out(record)
    if reason is not None:
        return leave_out(record.resource, seen, reason, history, stored_conflict)
    withdrawn = is_withdrawn(record, agent)
    wanted = DesiredResource(
        resource=record.resource,
        number=desired_count(record, is_withdrawn=withdrawn or not is_injectable(record)),
        seen=seen,
        was_advertised=was_advertised(node, record),
        stored_conflict=stored_conflict,
    )
    decision = decide_ownership(wanted, history, now)
    if withdrawn and decision.number is not None:
        return replace(decision, reason=names.Reason.FREE_WITHDRAWN)
    if decision.reason == names.Reason.ADVERTISED and not is_injectable(record):
        return replace(decision, reason=names.Reason.NOT_INJECTABLE)
    return decision


def _guarded(decision: OwnershipDecision, unguarded: Mapping[str, str]) -> OwnershipDecision:
    """A name that is on the Node already stays: only a new one waits."""
    if decision.is_new and decision.resource in unguarded:
        return replace(decision, number=None, reason=unguarded[decision.resource], differs=False, is_new=False)
    return decision


def _stored(node: NodeRecord, record: NodeDeviceRecord, kind: str) -> StoredCondition | None:
    """A stored condition of ours, if it is about this very Node: one from before the Node was created is about another."""
    stored = record.conditions.get(kind)
    return stored if stored is not None and stored.since >= node.made else None


def _apply(kept: Mapping[str, OwnershipDecision], given_up: frozenset[str]) -> Apply | None:
    """The apply that writes the decision to the Node; None if the Node shows it already."""
    if not given_up and not any(decision.differs for decision in kept.values()):
        return None
    is_forced = any(decision.needs_force for decision in kept.values())
    # a new name waits for the next apply, without force: another writer may take it at this very moment
    numbers = {
        name: decision.number
        for name, decision in kept.items()
        if decision.number is not None and not (is_forced and decision.is_new)
    }
    return Apply(numbers, is_forced)


def _remember(history: NodeHistory, decision: OwnershipDecision, now: float) -> NodeHistory:
    if decision.has_conflict_ended:
        history = without_conflict(history, decision.resource)
    if decision.drift is not None:
        history = with_repair(history, decision.resource, decision.drift.writer, now)
    if decision.conflict is None or (decision.resource in history.conflicts and not decision.is_conflict_new):
        return history
    if not decision.is_contention:
        return with_conflict(history, decision.resource, decision.conflict, None)
    backoff = history.backoffs.get(decision.resource, Contention()).paused(now)
    conflict = replace(decision.conflict, retry_at=backoff.paused_until)
    return with_conflict(history, decision.resource, conflict, backoff)


def _status(node: NodeRecord, record: NodeDeviceRecord, decision: OwnershipDecision) -> ResourceStatus:
    if decision.reason == names.Reason.SERVED_BY_DRA:
        # in slices, and never on the Node
        return ResourceStatus(record.endpoint == "Running", decision.reason, not_before=node.made)
    if decision.reason in names.NEVER_WRITTEN:
        is_shown = node.resources.get(decision.resource, NO_RESOURCE).allocatable is not None
        return ResourceStatus(is_shown, decision.reason, not_before=node.made)
    if decision.conflict is None:
        is_advertised = decision.number is not None and decision.reason in _SHOWN
        return ResourceStatus(is_advertised, decision.reason, not_before=node.made)
    conflict_reason = names.Reason.CHANGED_REPEATEDLY if decision.is_contention else names.Reason.FOREIGN_OWNER
    return ResourceStatus(False, decision.reason, decision.conflict.writer, conflict_reason, node.made)


def statuses_when_rejected(
    node: NodeRecord, records: Iterable[NodeDeviceRecord], decision: CapacityDecision
) -> Mapping[str, ResourceStatus | None]:
    """The status of each resource while `decision` cannot be written; None keeps the stored status."""
    by_resource = {record.resource: record for record in records}
    return {
        resource: _rejected_status(node, by_resource[resource], status, decision)
        for resource, status in decision.statuses.items()
    }


def as_before_rejection(record: NodeDeviceRecord) -> NodeDeviceRecord:
    """Input of the decision: the operator still owns an advertised name while its write is rejected or it is contended."""
    stored = record.conditions.get(names.Condition.ADVERTISED)
    if stored is None or stored.reason not in _STILL_OURS:
        return record
    return replace(record, conditions={**record.conditions, names.Condition.ADVERTISED: replace(stored, status="True")})


def _rejected_status(
    node: NodeRecord, record: NodeDeviceRecord, status: ResourceStatus, decision: CapacityDecision
) -> ResourceStatus | None:
    if status.conflict_with is not None or not _differs(node, record.resource, status, decision):
        return status
    if status.reason == names.Reason.FREE_WITHDRAWN == record.reason_of(names.Condition.ADVERTISED):
        # only by this condition a later operator knows that the free devices were withdrawn
        return None
    seen = node.resources.get(record.resource, NO_RESOURCE)
    was_ours = seen.is_ours or was_advertised(node, as_before_rejection(record))
    reason = names.Reason.UPDATE_REFUSED if was_ours else names.Reason.WRITE_REFUSED
    return replace(status, is_advertised=False, reason=reason)


def _differs(node: NodeRecord, resource: str, status: ResourceStatus, decision: CapacityDecision) -> bool:
    """Whether the Node shows another number than after the writes, regardless of the owner."""
    if decision.apply is None:
        return False
    seen = node.resources.get(resource, NO_RESOURCE)
    number = decision.apply.numbers.get(resource)
    if number is not None:
        return (seen.capacity, seen.allocatable) != (number, number)
    # left out of this apply: a new name comes with the next one, any other is removed from the Node
    is_to_come = status.is_advertised and status.reason not in names.NEVER_WRITTEN
    return is_to_come or seen.is_ours
