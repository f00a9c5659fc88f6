"""What the operator did to one Node so far: which names it applied, what it repaired, where it gave way.

A value, replaced and never changed. It is lost at a restart; what must outlive one is in the conditions of the NodeDevices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_common.backoff import exponential_seconds

# Three changes by one writer within this many seconds are a contest, not an accident.
CONTEST_WINDOW_SECONDS: Final = 60.0
CONTEST_CHANGES: Final = 3
# How long a contested name is left alone, doubled each time up to the longest.
FIRST_RETREAT_SECONDS: Final = 60.0
LONGEST_RETREAT_SECONDS: Final = 600.0
# How long a name keeps its number without its NodeDevice: one that was deleted by hand is made anew by its agent within a second,
# or when it next tries to reach an API server that was away: 30 seconds at most.
LOST_GRACE_SECONDS: Final = 35.0


@dataclass(frozen=True, slots=True)
class Repair:
    """A foreign change that was undone: who made it, and when (monotonic seconds)."""

    writer: str
    at: float


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name that is left to somebody else.

    `retry_at` is None where it was never ours: then only the end of the foreign value ends the conflict. Otherwise it was
    changed repeatedly, and is tried again at that time (monotonic seconds); `is_removal` says that the change was to take
    the value away, so that its absence ends nothing.
    """

    writer: str
    retry_at: float | None = None
    is_removal: bool = False


@dataclass(frozen=True, slots=True)
class Retreat:
    """How often in a row a name was given up, and until when that counts (monotonic seconds)."""

    times: int
    counts_until: float


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """History of one Node, that is of one uid.

    `trusts_conditions` is False when the Node was made anew while the operator watched: an Advertised condition may then
    speak of the Node before it. `ended` are conflicts that are over and told, while their condition may still say True.
    `lost` are names of ours whose NodeDevice is gone, and since when (monotonic seconds).
    """

    uid: str
    trusts_conditions: bool = True
    applied: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    repairs: Mapping[str, tuple[Repair, ...]] = field(default_factory=dict)
    conflicts: Mapping[str, Conflict] = field(default_factory=dict)
    retreats: Mapping[str, Retreat] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)

    def recent_repairs(self, resource: str, now: float) -> tuple[Repair, ...]:
        """Repairs of that name that still count."""
        return tuple(r for r in self.repairs.get(resource, ()) if now - r.at < CONTEST_WINDOW_SECONDS)


def history_of(node_uid: str, before: NodeHistory | None) -> NodeHistory:
    """The history to go on with: `before` where it is of the same Node, else an empty one."""
    if before is not None and before.uid == node_uid:
        return before
    return NodeHistory(node_uid, trusts_conditions=before is None)


def with_lost(history: NodeHistory, lost: Iterable[str], now: float) -> NodeHistory:
    """`history` where these names, and no others, are without their NodeDevice; one that was before keeps its time."""
    return replace(history, lost={name: history.lost.get(name, now) for name in lost})


def given_up_at(history: NodeHistory, resource: str) -> float:
    """When a name that is lost is given up, in monotonic seconds."""
    return history.lost[resource] + LOST_GRACE_SECONDS


def is_contest(history: NodeHistory, resource: str, writer: str, now: float) -> bool:
    """Whether one more change by that writer makes it a contest."""
    earlier = sum(1 for repair in history.recent_repairs(resource, now) if repair.writer == writer)
    return earlier + 1 >= CONTEST_CHANGES


def retreat(history: NodeHistory, resource: str, now: float) -> Retreat:
    """The retreat that a contest now leads to; longer when the last one is not long over."""
    last = history.retreats.get(resource)
    times = last.times + 1 if last is not None and now < last.counts_until else 1
    seconds = exponential_seconds(times - 1, FIRST_RETREAT_SECONDS, LONGEST_RETREAT_SECONDS)
    return Retreat(times, now + seconds + LONGEST_RETREAT_SECONDS)


def retry_at(chosen: Retreat) -> float:
    """When a name given up with that retreat is tried again, in monotonic seconds."""
    return chosen.counts_until - LONGEST_RETREAT_SECONDS


def with_conflict(history: NodeHistory, resource: str, conflict: Conflict, chosen: Retreat | None) -> NodeHistory:
    """`history` after `resource` was left to somebody else."""
    retreats = {**history.retreats, resource: chosen} if chosen else history.retreats
    return replace(
        history,
        applied=history.applied - {resource},
        ended=history.ended - {resource},
        conflicts={**history.conflicts, resource: conflict},
        retreats=retreats,
    )


def with_conflicts(history: NodeHistory, decided: NodeHistory) -> NodeHistory:
    """`history` with the conflicts that were found in `decided` besides: others hold these names whatever became of the rest."""
    for resource in decided.conflicts.keys() - history.conflicts.keys():
        history = with_conflict(history, resource, decided.conflicts[resource], decided.retreats.get(resource))
    return history


def without_conflict(history: NodeHistory, resource: str) -> NodeHistory:
    """`history` after the conflict about `resource` ended and that was told."""
    rest = {name: conflict for name, conflict in history.conflicts.items() if name != resource}
    return replace(history, conflicts=rest, ended=history.ended | {resource})


def with_repair(history: NodeHistory, resource: str, writer: str, now: float) -> NodeHistory:
    """`history` after a change of `resource` by `writer` was undone; what no longer counts is dropped."""
    recent = (*history.recent_repairs(resource, now), Repair(writer, now))
    return replace(history, repairs={**history.repairs, resource: recent})
