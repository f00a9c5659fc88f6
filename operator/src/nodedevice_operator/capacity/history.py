"""What the operator did to one Node so far: which names it applied, what it repaired, where it backed off.

An immutable value. It is lost at a restart; what must outlive one is in the conditions of the NodeDevices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_common.backoff import exponential_seconds

# Three changes by one writer within this many seconds are contention, not an accident.
CONTENTION_WINDOW_SECONDS: Final = 60.0
CONTENTION_CHANGES: Final = 3
# How long the operator backs off from a contended name, doubled each time up to the longest.
FIRST_BACKOFF_SECONDS: Final = 60.0
LONGEST_BACKOFF_SECONDS: Final = 600.0
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
    """A name that another field manager owns, and that is not written.

    `retry_at` is None where the name was never ours: then only the removal of the foreign value ends the conflict. Otherwise it was
    changed repeatedly, and is tried again at that time (monotonic seconds); `is_removal` says that the change was to remove the
    value, so that its absence ends nothing.
    """

    writer: str
    retry_at: float | None = None
    is_removal: bool = False


@dataclass(frozen=True, slots=True)
class ContentionBackoff:
    """How many times in a row the operator backed off from a name, and until when that counts (monotonic seconds)."""

    times: int
    counts_until: float

    @property
    def retry_at(self) -> float:
        """When the name is tried again, in monotonic seconds."""
        return self.counts_until - LONGEST_BACKOFF_SECONDS


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
    backoffs: Mapping[str, ContentionBackoff] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)

    def recent_repairs(self, resource: str, now: float) -> tuple[Repair, ...]:
        """Repairs of that name that still count."""
        return tuple(r for r in self.repairs.get(resource, ()) if now - r.at < CONTENTION_WINDOW_SECONDS)


def history_of(node_uid: str, before: NodeHistory | None) -> NodeHistory:
    """The history to go on with: `before` where it is of the same Node, else an empty one."""
    if before is not None and before.uid == node_uid:
        return before
    return NodeHistory(node_uid, trusts_conditions=before is None)


def with_lost(history: NodeHistory, lost: Iterable[str], now: float) -> NodeHistory:
    """`history` where these names, and no others, are without their NodeDevice; a name that was so before keeps its time."""
    return replace(history, lost={name: history.lost.get(name, now) for name in lost})


def given_up_at(history: NodeHistory, resource: str) -> float:
    """When a lost name is given up, in monotonic seconds."""
    return history.lost[resource] + LOST_GRACE_SECONDS


def is_contention(history: NodeHistory, resource: str, writer: str, now: float) -> bool:
    """Whether one more change by that writer makes it contention."""
    earlier = sum(1 for repair in history.recent_repairs(resource, now) if repair.writer == writer)
    return earlier + 1 >= CONTENTION_CHANGES


def next_backoff(history: NodeHistory, resource: str, now: float) -> ContentionBackoff:
    """The backoff from a contended name that starts now; longer when the last one ended not long ago."""
    last = history.backoffs.get(resource)
    times = last.times + 1 if last is not None and now < last.counts_until else 1
    seconds = exponential_seconds(times - 1, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
    return ContentionBackoff(times, now + seconds + LONGEST_BACKOFF_SECONDS)


def with_conflict(
    history: NodeHistory, resource: str, conflict: OwnershipConflict, backoff: ContentionBackoff | None
) -> NodeHistory:
    """`history` after `resource` was left to another field manager."""
    return replace(
        history,
        applied=history.applied - {resource},
        ended=history.ended - {resource},
        conflicts={**history.conflicts, resource: conflict},
        backoffs={**history.backoffs, resource: backoff} if backoff else history.backoffs,
    )


def with_conflicts(history: NodeHistory, decided: NodeHistory) -> NodeHistory:
    """`history` with the conflicts that `decided` has besides: they exist whatever became of the write."""
    for resource in decided.conflicts.keys() - history.conflicts.keys():
        history = with_conflict(history, resource, decided.conflicts[resource], decided.backoffs.get(resource))
    return history


def without_conflict(history: NodeHistory, resource: str) -> NodeHistory:
    """`history` after the conflict about `resource` ended and that was reported."""
    rest = {name: conflict for name, conflict in history.conflicts.items() if name != resource}
    return replace(history, conflicts=rest, ended=history.ended | {resource})


def with_repair(history: NodeHistory, resource: str, writer: str, now: float) -> NodeHistory:
    """`history` after a change of `resource` by `writer` was undone; what no longer counts is dropped."""
    recent = (*history.recent_repairs(resource, now), Repair(writer, now))
    return replace(history, repairs={**history.repairs, resource: recent})
