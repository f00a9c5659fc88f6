"""Whose is a name on a Node: ours to write, ours to take back, or somebody else's.

One resource at a time. The answer rests on who owns the value now (managedFields), on whether it was advertised for this
Node before, and on how often it had to be put back.
"""

from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.capacity.history import FIRST_RETREAT_SECONDS, Conflict, NodeHistory, is_contest
from nodedevice_operator.objects.node import UNKNOWN_WRITER, ExtendedResource

CHANGED: Final = "changed"
ZEROED: Final = "zeroed"
REMOVED: Final = "removed"


@dataclass(frozen=True, slots=True)
class Claim:
    """One resource that is to be advertised: how many, what the Node shows, and what was told of it before.

    `told_conflict` is the reason of the stored Conflict condition where that is True.
    """

    resource: str
    number: int
    seen: ExtendedResource
    was_advertised: bool = False
    told_conflict: str | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """A foreign change to a name that is ours: by whom, how, and what was found (None: nothing)."""

    writer: str
    cause: str
    found: int | None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is done about one resource. `number` None: it is not in the apply.

    differs: the Node does not show that yet. needs_force: somebody owns a part that must change. is_new: nobody has the
    name. is_contest: the conflict comes from repeated changes. is_conflict_new: it has not been told yet.
    """

    resource: str
    number: int | None
    reason: str
    differs: bool = False
    needs_force: bool = False
    is_new: bool = False
    drift: Drift | None = None
    conflict: Conflict | None = None
    is_contest: bool = False
    is_conflict_new: bool = False
    has_conflict_ended: bool = False


def judge(claim: Claim, history: NodeHistory, now: float) -> Ruling:
    """Rule on a resource that is to be advertised. now: monotonic seconds."""
    if claim.resource in history.ended:
        claim = replace(claim, told_conflict=None)
    conflict = _standing(claim, history, now)
    if conflict is not None and not _is_over(conflict, claim.seen, now):
        return _leave(claim, conflict, is_contest=conflict.retry_at is not None, is_new=False)
    has_ended = conflict is not None or claim.told_conflict is not None
    was_contest = conflict is not None and conflict.retry_at is not None
    if was_contest or _is_prior(claim, history):
        return _keep(claim, history, now, has_ended)
    strangers = claim.seen.capacity_strangers | claim.seen.allocatable_strangers
    if claim.seen.is_present:
        foreign = Conflict(_writer(strangers))
        return _leave(claim, foreign, is_contest=False, is_new=not has_ended)
    return Ruling(
        claim.resource,
        claim.number,
        names.Reason.ADVERTISED,
        differs=True,
        is_new=True,
        has_conflict_ended=has_ended,
    )


def hold(resource: str, seen: ExtendedResource, reason: str) -> Ruling:
    """Rule on a resource of which nothing is known now: what is ours stays as it is, whatever else is applied.

    Leaving it out of an apply would take it off the Node.
    """
    if not seen.is_capacity_ours or seen.capacity is None:
        return Ruling(resource, None, reason)
    return Ruling(resource, seen.capacity, reason, needs_force=_needs_force(seen, seen.capacity))


def _standing(claim: Claim, history: NodeHistory, now: float) -> Conflict | None:
    """The conflict about this name, if there is one; after a restart, the one its condition tells of."""
    remembered = history.conflicts.get(claim.resource)
    if remembered is not None or not history.trusts_conditions:
        return remembered
    if claim.told_conflict == names.Reason.CHANGED_REPEATEDLY:
        # what was changed is not told: where nothing is there, it was taken away, and its absence ends nothing
        is_removal = not claim.seen.is_present
        return Conflict(UNKNOWN_WRITER, retry_at=now + FIRST_RETREAT_SECONDS, is_removal=is_removal)
    return None


def _is_over(conflict: Conflict, seen: ExtendedResource, now: float) -> bool:
    if conflict.retry_at is not None and now >= conflict.retry_at:
        return True
    has_strangers = bool(seen.capacity_strangers or seen.allocatable_strangers)
    return not has_strangers and not conflict.is_removal


def _is_prior(claim: Claim, history: NodeHistory) -> bool:
    """Whether the name was ours on this Node before, so that it may be taken back by force."""
    seen, resource = claim.seen, claim.resource
    if seen.is_capacity_ours or seen.is_allocatable_ours or resource in history.applied:
        return True
    if resource in history.withdrawn:
        # we gave it up; a copy that a kubelet still has in allocatable is a leftover of ours, a capacity is a new owner
        return seen.capacity is None and seen.allocatable is not None
    return history.trusts_conditions and claim.was_advertised


def _keep(claim: Claim, history: NodeHistory, now: float, has_ended: bool) -> Ruling:
    seen, number = claim.seen, claim.number
    # a conflict that has just ended is no drift: what is there was left there knowingly
    drift = None if has_ended or claim.resource in history.withdrawn else _drift(seen, number)
    if drift is not None and is_contest(history, claim.resource, drift.writer, now):
        conflict = Conflict(drift.writer, retry_at=now, is_removal=drift.cause == REMOVED)
        return _leave(claim, conflict, is_contest=True, is_new=True)
    return Ruling(
        claim.resource,
        number,
        names.Reason.ADVERTISED,
        differs=seen.capacity != number or seen.allocatable != number or not seen.is_capacity_ours,
        needs_force=_needs_force(seen, number),
        drift=drift,
        has_conflict_ended=has_ended,
    )


def _needs_force(seen: ExtendedResource, number: int) -> bool:
    # an owner of the value that we write anyway does not mind: it is owned by both then
    by_capacity = seen.capacity_strangers and seen.capacity != number
    by_allocatable = seen.allocatable_strangers and seen.allocatable != number
    return bool(by_capacity or by_allocatable)


def _drift(seen: ExtendedResource, number: int) -> Drift | None:
    """What a stranger did to a name of ours, if anything.

    A kubelet copies capacity into allocatable, and may own the copy: as long as both agree nothing happened. Nor did it where
    the number is right and only its owner another, as after managedFields were reset by hand: it is taken back without a word.
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


def _leave(claim: Claim, conflict: Conflict, *, is_contest: bool, is_new: bool) -> Ruling:
    reason = names.Reason.CHANGED_REPEATEDLY if is_contest else names.Reason.FOREIGN_OWNER
    return Ruling(
        claim.resource,
        None,
        reason,
        conflict=conflict,
        is_contest=is_contest,
        is_conflict_new=is_new and not claim.told_conflict,
    )
