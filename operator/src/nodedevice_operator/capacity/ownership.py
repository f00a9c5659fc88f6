"""Decides who owns an extended resource in a Node's status (the operator, now or before, or another field manager), with the
Events.

One resource at a time. The decision rests on who owns the value now (managedFields), on whether it was advertised for this Node
before, and on how often it had to be restored. The history of a Node holds the writes so far. It is immutable and lost at a
restart; the conditions of the NodeDevices keep the facts that must survive one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.contention import (
    CONTENTION_CHANGES,
    CONTENTION_WINDOW_SECONDS,
    FIRST_BACKOFF_SECONDS,
    Contention,
)
from nodedevice_operator.objects.node import UNKNOWN_WRITER, ExtendedResource, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.events import NORMAL, WARNING, Event, EventReason, about_node, about_node_device

CHANGED: Final = "changed"
ZEROED: Final = "zeroed"
REMOVED: Final = "removed"

# How long a name keeps its number without its NodeDevice: one that was deleted by hand is recreated by its agent within a second,
# or when it next tries to reach an API server that was away: 30 seconds at most.
LOST_GRACE_SECONDS: Final = 35.0


@dataclass(frozen=True, slots=True)
class Repair:
    """A foreign change that was undone: who made it, and when (monotonic seconds)."""

    writer: str
    at: float


@dataclass(frozen=True, slots=True)
class OwnershipConflict:
    """A name that another field manager owns. The operator does not write it.

    `retry_at` is None if the operator never owned the name: then only the removal of the foreign value ends the conflict. Otherwise
    the name was changed repeatedly, and the operator retries at that time (monotonic seconds); `is_removal`: the change was to
    remove the value, so that its absence ends nothing.
    """

    writer: str
    retry_at: float | None = None
    is_removal: bool = False


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """History of one Node, that is of one uid.

    `trusts_conditions` is False when the Node was recreated while the operator watched: an Advertised condition may then be about
    the Node before it. `ended` are conflicts that are over and reported, while their condition may still be True.
    `lost` are names of ours whose NodeDevice is gone, and since when (monotonic seconds).
    """

    uid: str
    trusts_conditions: bool = True
    applied: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    repairs: Mapping[str, tuple[Repair, ...]] = field(default_factory=dict)
    conflicts: Mapping[str, OwnershipConflict] = field(default_factory=dict)
    backoffs: Mapping[str, Contention] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)

    def recent_repairs(self, resource: str, now: float) -> tuple[Repair, ...]:
        return tuple(r for r in self.repairs.get(resource, ()) if now - r.at < CONTENTION_WINDOW_SECONDS)


def history_of(node_uid: str, before: NodeHistory | None) -> NodeHistory:
    if before is not None and before.uid == node_uid:
        return before
    return NodeHistory(node_uid, trusts_conditions=before is None)


def given_up_at(history: NodeHistory, resource: str) -> float:
    return history.lost[resource] + LOST_GRACE_SECONDS


def with_conflict(
    history: NodeHistory, resource: str, conflict: OwnershipConflict, backoff: Contention | None
) -> NodeHistory:
    return replace(
        history,
        applied=history.applied - {resource},
        ended=history.ended - {resource},
        conflicts={**history.conflicts, resource: conflict},
        backoffs={**history.backoffs, resource: backoff} if backoff else history.backoffs,
    )


def with_conflicts(history: NodeHistory, decided: NodeHistory) -> NodeHistory:
    """Adds the conflicts of `decided` to `history`: they exist even if the write fails."""
    for resource in decided.conflicts.keys() - history.conflicts.keys():
        history = with_conflict(history, resource, decided.conflicts[resource], decided.backoffs.get(resource))
    return history


def without_conflict(history: NodeHistory, resource: str) -> NodeHistory:
    rest = {name: conflict for name, conflict in history.conflicts.items() if name != resource}
    return replace(history, conflicts=rest, ended=history.ended | {resource})


def with_repair(history: NodeHistory, resource: str, writer: str, now: float) -> NodeHistory:
    recent = (*history.recent_repairs(resource, now), Repair(writer, now))
    return replace(history, repairs={**history.repairs, resource: recent})


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """`seen`: the Node's value. `stored_conflict`: the reason of the stored Conflict condition if its status is True."""

    resource: str
    number: int
    seen: ExtendedResource
    was_advertised: bool = False
    stored_conflict: str | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """A foreign change to a name of the operator: the writer and its value (None: removed)."""

    writer: str
    found: int | None

    @property
    def cause(self) -> str:
        if self.found is None:
            return REMOVED
        return ZEROED if self.found == 0 else CHANGED


@dataclass(frozen=True, slots=True)
class OwnershipDecision:
    """differs: from the Node. needs_force: others own a part. is_new: it has no owner. is_conflict_new: not reported yet."""

    resource: str
    number: int | None
    reason: str
    differs: bool = False
    needs_force: bool = False
    is_new: bool = False
    drift: Drift | None = None
    conflict: OwnershipConflict | None = None
    is_conflict_new: bool = False
    has_conflict_ended: bool = False

    @property
    def is_contention(self) -> bool:
        """Whether the conflict comes from repeated changes."""
        return self.conflict is not None and self.conflict.retry_at is not None


def decide_ownership(wanted: DesiredResource, history: NodeHistory, now: float) -> OwnershipDecision:
    """Decide on a resource to advertise. now: monotonic seconds."""
    if wanted.resource in history.ended:
        wanted = replace(wanted, stored_conflict=None)
    conflict = _current_conflict(wanted, history, now)
    if conflict is not None and not _is_over(conflict, wanted.seen, now):
        return _yield_to(wanted, conflict, is_new=False)
    has_ended = conflict is not None or wanted.stored_conflict is not None
    was_contended = conflict is not None and conflict.retry_at is not None
    if was_contended or _was_ours(wanted, history):
        return _keep(wanted, history, now, has_ended)
    if wanted.seen.is_present:
        return _yield_to(wanted, OwnershipConflict(_writer(wanted.seen.strangers)), is_new=not has_ended)
    new = OwnershipDecision(wanted.resource, wanted.number, names.Reason.ADVERTISED, differs=True, is_new=True)
    return replace(new, has_conflict_ended=has_ended)


def hold(resource: str, seen: ExtendedResource, reason: str) -> OwnershipDecision:
    """Decides without current facts: a name of the operator keeps its value in the apply, which would otherwise remove it."""
    if not seen.is_capacity_ours or seen.capacity is None:
        return OwnershipDecision(resource, None, reason)
    return OwnershipDecision(resource, seen.capacity, reason, needs_force=_needs_force(seen, seen.capacity))


def leave_out(
    resource: str, seen: ExtendedResource, reason: str, history: NodeHistory, stored_conflict: str | None
) -> OwnershipDecision:
    """Decides on a resource that is not advertised, for that reason. Another manager that offers devices is a conflict."""
    known = history.conflicts.get(resource)
    stored = None if resource in history.ended else stored_conflict
    if reason in names.NEVER_WRITTEN or seen.is_capacity_ours or not seen.capacity:
        return OwnershipDecision(resource, None, reason, has_conflict_ended=bool(known or stored))
    # contention is over: nothing is written that the other could change
    is_reported = known.retry_at is None if known else stored == names.Reason.FOREIGN_OWNER
    conflict = OwnershipConflict(_writer(seen.capacity_strangers))
    return OwnershipDecision(resource, None, reason, conflict=conflict, is_conflict_new=not is_reported)


def ownership_events(node: NodeRecord, record: NodeDeviceRecord, decision: OwnershipDecision) -> Iterator[Event]:
    """A repair, a conflict, and its end: each on the Node and on the NodeDevice, so that describing either shows all of it."""
    for kind, reason, message in _messages(decision):
        for about in (about_node(node), about_node_device(record)):
            yield Event(about, kind, reason, message)


def _messages(decision: OwnershipDecision) -> Iterator[tuple[str, str, str]]:
    if decision.has_conflict_ended:
        message = f"{decision.resource}: no other field manager owns this name any more"
        yield NORMAL, EventReason.CAPACITY_CONFLICT_ENDED, message
    if decision.drift is not None:
        message = f"{decision.resource}: {_change(decision.drift)}, restored to {decision.number}"
        yield WARNING, EventReason.CAPACITY_REPAIRED, message
    if decision.conflict is not None and decision.is_conflict_new:
        if decision.is_contention:
            remedy = "repeatedly changes the advertised value; the operator backs off for some time: stop that writer"
        elif decision.reason == names.Reason.FOREIGN_OWNER:
            remedy = (
                "set this name before it was advertised; the operator does not write it until it is removed from the "
                "Node's status"
            )
        else:
            remedy = "sets this name, which the operator does not advertise any more"
        yield WARNING, EventReason.CAPACITY_CONFLICT, f"{decision.resource}: {decision.conflict.writer} {remedy}"


def _change(drift: Drift) -> str:
    # a removed value has no owner: managedFields does not name who removed it
    writer = "an unknown writer" if drift.writer == UNKNOWN_WRITER else drift.writer
    return f"{writer} removed it" if drift.found is None else f"{writer} set it to {drift.found}"


def _current_conflict(wanted: DesiredResource, history: NodeHistory, now: float) -> OwnershipConflict | None:
    """The conflict about this name, if there is one; after a restart, the one stored in its condition."""
    remembered = history.conflicts.get(wanted.resource)
    if remembered is not None or not history.trusts_conditions:
        return remembered
    if wanted.stored_conflict == names.Reason.CHANGED_REPEATEDLY:
        # the kind of change is not stored: a missing value means that it was removed, and its absence does not end the conflict
        is_removal = not wanted.seen.is_present
        return OwnershipConflict(UNKNOWN_WRITER, retry_at=now + FIRST_BACKOFF_SECONDS, is_removal=is_removal)
    return None


def _is_over(conflict: OwnershipConflict, seen: ExtendedResource, now: float) -> bool:
    if conflict.retry_at is not None and now >= conflict.retry_at:
        return True
    return not seen.strangers and not conflict.is_removal


def _was_ours(wanted: DesiredResource, history: NodeHistory) -> bool:
    """Whether the operator owned the name on this Node before, so that it may restore the name by force."""
    seen, resource = wanted.seen, wanted.resource
    if seen.is_ours or resource in history.applied:
        return True
    if resource in history.withdrawn:
        # we gave it up; a copy that a kubelet still has in allocatable is a leftover of ours, a capacity is a new owner
        return seen.capacity is None and seen.allocatable is not None
    return history.trusts_conditions and wanted.was_advertised


def _keep(wanted: DesiredResource, history: NodeHistory, now: float, has_ended: bool) -> OwnershipDecision:
    seen, number = wanted.seen, wanted.number
    # after a conflict that has just ended the foreign value is not drift: it was left there on purpose
    drift = None if has_ended or wanted.resource in history.withdrawn else _drift(seen, number)
    if drift is not None:
        earlier = sum(repair.writer == drift.writer for repair in history.recent_repairs(wanted.resource, now))
        if earlier + 1 >= CONTENTION_CHANGES:
            conflict = OwnershipConflict(drift.writer, retry_at=now, is_removal=drift.found is None)
            return _yield_to(wanted, conflict, is_new=True)
    return OwnershipDecision(
        wanted.resource,
        number,
        names.Reason.ADVERTISED,
        differs=seen.capacity != number or seen.allocatable != number or not seen.is_capacity_ours,
        needs_force=_needs_force(seen, number),
        drift=drift,
        has_conflict_ended=has_ended,
    )


def _needs_force(seen: ExtendedResource, number: int) -> bool:
    # another owner of the same value does not conflict: both own it
    by_capacity = seen.capacity_strangers and seen.capacity != number
    by_allocatable = seen.allocatable_strangers and seen.allocatable != number
    return bool(by_capacity or by_allocatable)


def _drift(seen: ExtendedResource, number: int) -> Drift | None:
    """A foreign change to a name of the operator, if any.

    A kubelet copies capacity into allocatable, and may own the copy: that is fine while both agree. If the number is right and only
    the owner differs, as after a manual reset of managedFields, the name is restored without an Event.
    """
    if not seen.is_capacity_ours and seen.capacity != number:
        return Drift(_writer(seen.capacity_strangers), seen.capacity)
    if not seen.is_allocatable_ours and seen.allocatable != seen.capacity:
        return Drift(_writer(seen.allocatable_strangers), seen.allocatable)
    return None


def _writer(strangers: frozenset[str]) -> str:
    return ", ".join(sorted(strangers)) or UNKNOWN_WRITER


def _yield_to(wanted: DesiredResource, conflict: OwnershipConflict, *, is_new: bool) -> OwnershipDecision:
    reason = names.Reason.FOREIGN_OWNER if conflict.retry_at is None else names.Reason.CHANGED_REPEATEDLY
    is_conflict_new = is_new and not wanted.stored_conflict
    return OwnershipDecision(wanted.resource, None, reason, conflict=conflict, is_conflict_new=is_conflict_new)
