"""Who owns an extended resource in a Node's status: us, us before, or another field manager; and the Events about that.

One resource at a time. The decision rests on who owns the value now (managedFields), on whether it was advertised for this Node
before, and on how often it had to be restored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.capacity.history import (
    FIRST_BACKOFF_SECONDS,
    NodeHistory,
    OwnershipConflict,
    is_contention,
)
from nodedevice_operator.events.transitions import NORMAL, WARNING, Event, EventReason, about_node, about_node_device
from nodedevice_operator.objects.node import UNKNOWN_WRITER, ExtendedResource, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

CHANGED: Final = "changed"
ZEROED: Final = "zeroed"
REMOVED: Final = "removed"


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """One resource to advertise: how many, what the Node shows, and what is stored of it.

    `stored_conflict` is the reason of the stored Conflict condition where that is True.
    """

    resource: str
    number: int
    seen: ExtendedResource
    was_advertised: bool = False
    stored_conflict: str | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """A foreign change to a name that is ours: by which writer, how, and the value found (None: no value)."""

    writer: str
    cause: str
    found: int | None


@dataclass(frozen=True, slots=True)
class OwnershipDecision:
    """What is done about one resource. `number` None: it is not in the apply.

    differs: the Node does not show that number yet. needs_force: others own a part that must change. is_new: nobody has the name.
    is_contention: the conflict comes from repeated changes. is_conflict_new: it has not been reported yet.
    """

    resource: str
    number: int | None
    reason: str
    differs: bool = False
    needs_force: bool = False
    is_new: bool = False
    drift: Drift | None = None
    conflict: OwnershipConflict | None = None
    is_contention: bool = False
    is_conflict_new: bool = False
    has_conflict_ended: bool = False


def decide_ownership(wanted: DesiredResource, history: NodeHistory, now: float) -> OwnershipDecision:
    """Decide on a resource to advertise. now: monotonic seconds."""
    if wanted.resource in history.ended:
        wanted = replace(wanted, stored_conflict=None)
    conflict = _current_conflict(wanted, history, now)
    if conflict is not None and not _is_over(conflict, wanted.seen, now):
        return _yield_to(wanted, conflict, is_contention=conflict.retry_at is not None, is_new=False)
    has_ended = conflict is not None or wanted.stored_conflict is not None
    was_contended = conflict is not None and conflict.retry_at is not None
    if was_contended or _was_ours(wanted, history):
        return _keep(wanted, history, now, has_ended)
    strangers = wanted.seen.capacity_strangers | wanted.seen.allocatable_strangers
    if wanted.seen.is_present:
        return _yield_to(wanted, OwnershipConflict(_writer(strangers)), is_contention=False, is_new=not has_ended)
    return OwnershipDecision(
        wanted.resource,
        wanted.number,
        names.Reason.ADVERTISED,
        differs=True,
        is_new=True,
        has_conflict_ended=has_ended,
    )


def hold(resource: str, seen: ExtendedResource, reason: str) -> OwnershipDecision:
    """Decide on a resource of which nothing is known now: what is ours stays as it is, whatever else is applied.

    An apply without it would remove it from the Node.
    """
    if not seen.is_capacity_ours or seen.capacity is None:
        return OwnershipDecision(resource, None, reason)
    return OwnershipDecision(resource, seen.capacity, reason, needs_force=_needs_force(seen, seen.capacity))


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
        remedy = (
            "repeatedly changes the advertised value; the operator backs off for some time: stop that writer"
            if decision.is_contention
            else "set this name before it was advertised; the operator does not write it until it is removed from the Node's status"
        )
        yield WARNING, EventReason.CAPACITY_CONFLICT, f"{decision.resource}: {decision.conflict.writer} {remedy}"


def _change(drift: Drift) -> str:
    # a removed value has no owner: managedFields does not say who removed it
    writer = "an unknown writer" if drift.writer == UNKNOWN_WRITER else drift.writer
    return f"{writer} removed it" if drift.found is None else f"{writer} set it to {drift.found}"


def _current_conflict(wanted: DesiredResource, history: NodeHistory, now: float) -> OwnershipConflict | None:
    """The conflict about this name, if there is one; after a restart, the one stored in its condition."""
    remembered = history.conflicts.get(wanted.resource)
    if remembered is not None or not history.trusts_conditions:
        return remembered
    if wanted.stored_conflict == names.Reason.CHANGED_REPEATEDLY:
        # what was changed is not stored: where there is no value, it was removed, and its absence ends nothing
        is_removal = not wanted.seen.is_present
        return OwnershipConflict(UNKNOWN_WRITER, retry_at=now + FIRST_BACKOFF_SECONDS, is_removal=is_removal)
    return None


def _is_over(conflict: OwnershipConflict, seen: ExtendedResource, now: float) -> bool:
    if conflict.retry_at is not None and now >= conflict.retry_at:
        return True
    has_strangers = bool(seen.capacity_strangers or seen.allocatable_strangers)
    return not has_strangers and not conflict.is_removal


def _was_ours(wanted: DesiredResource, history: NodeHistory) -> bool:
    """Whether the name was ours on this Node before, so that it may be taken back by force."""
    seen, resource = wanted.seen, wanted.resource
    if seen.is_capacity_ours or seen.is_allocatable_ours or resource in history.applied:
        return True
    if resource in history.withdrawn:
        # we gave it up; a copy that a kubelet still has in allocatable is a leftover of ours, a capacity is a new owner
        return seen.capacity is None and seen.allocatable is not None
    return history.trusts_conditions and wanted.was_advertised


def _keep(wanted: DesiredResource, history: NodeHistory, now: float, has_ended: bool) -> OwnershipDecision:
    seen, number = wanted.seen, wanted.number
    # after a conflict that has just ended there is no drift: the foreign value was left there on purpose
    drift = None if has_ended or wanted.resource in history.withdrawn else _drift(seen, number)
    if drift is not None and is_contention(history, wanted.resource, drift.writer, now):
        conflict = OwnershipConflict(drift.writer, retry_at=now, is_removal=drift.cause == REMOVED)
        return _yield_to(wanted, conflict, is_contention=True, is_new=True)
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
    # an owner of the same value is no conflict: both own it then
    by_capacity = seen.capacity_strangers and seen.capacity != number
    by_allocatable = seen.allocatable_strangers and seen.allocatable != number
    return bool(by_capacity or by_allocatable)


def _drift(seen: ExtendedResource, number: int) -> Drift | None:
    """A foreign change to a name of ours, if any.

    A kubelet copies capacity into allocatable, and may own the copy: while both agree nothing is wrong. Nor is it where the number
    is right and only its owner is another, as after a manual reset of managedFields: it is taken back without an Event.
    """
    if not seen.is_capacity_ours and seen.capacity != number:
        return Drift(_writer(seen.capacity_strangers), _cause(seen.capacity), seen.capacity)
    if not seen.is_allocatable_ours and seen.allocatable != seen.capacity:
        return Drift(_writer(seen.allocatable_strangers), _cause(seen.allocatable), seen.allocatable)
    return None


def _cause(found: int | None) -> str:
    if found is None:
        return REMOVED
    return ZEROED if found == 0 else CHANGED


def _writer(strangers: frozenset[str]) -> str:
    return ", ".join(sorted(strangers)) or UNKNOWN_WRITER


def _yield_to(
    wanted: DesiredResource, conflict: OwnershipConflict, *, is_contention: bool, is_new: bool
) -> OwnershipDecision:
    reason = names.Reason.CHANGED_REPEATEDLY if is_contention else names.Reason.FOREIGN_OWNER
    return OwnershipDecision(
        wanted.resource,
        None,
        reason,
        conflict=conflict,
        is_contention=is_contention,
        is_conflict_new=is_new and not wanted.stored_conflict,
    )
