"""Decides which of several operators may write: the holder of a Lease, and only while it is sure to hold it.

The holder renews the Lease. Another candidate takes it when it has not seen it change for as long as the holder stated, or at once
when its holder has released it. Each candidate measures ages by its own monotonic clock, from when it saw a change, so no two
clocks are compared. Resource versions decide between two candidates that write at the same moment.

A claim may be stored although its response is lost, and others trust the stored Lease. So the holder adopts the deadline of a new
claim before it sends the claim.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_kube.leases import Lease

# The duration in a Lease may have been written by hand; no candidate waits longer than any setting allows.
LONGEST_LEASE_SECONDS: Final = 60
SHORTEST_LEASE_SECONDS: Final = 2
# A crash of the leader is noticed so late at most where the API server is slow and the setting is shorter.
_LONGEST_WHEN_SLOW_SECONDS: Final = 20
# Two tries of a renewal, a quarter of the Lease each, and a fifth more.
_LEASES_IN_ANSWERS: Final = 5
# The holder of a deleted Lease that others may have taken before.
_ANYBODY: Final = "unknown"
# The slowest of so many responses counts: one is due each quarter of the Lease.
_REMEMBERED_ANSWERS: Final = 16


@dataclass(frozen=True, slots=True)
class Timing:
    """The duration of the Lease; all other times are fractions of it.

    The holder stops writing a quarter of it before another may begin. A write under way has that time to arrive; a slow network
    delivers it later, until its request ends. A renewal begins after a quarter, and is sent once more if it has no response a
    quarter later.
    """

    lease_seconds: int

    @property
    def deadline_seconds(self) -> float:
        """How long the sender of a renewal may write, from when it sent it."""
        return self.lease_seconds * 0.75

    @property
    def renew_seconds(self) -> float:
        return self.lease_seconds / 4

    @property
    def second_try_seconds(self) -> float:
        """How long a renewal waits for its response before the second try."""
        return self.lease_seconds / 4

    @property
    def retry_seconds(self) -> float:
        """How often a standby reads the Lease, and so how soon it takes a released one."""
        return self.lease_seconds / 8


@dataclass(frozen=True, slots=True)
class Pace:
    """The duration of the own Lease: as set, and longer while the API server responds slowly.

    A long Lease delays the takeover after a crash; a short one is lost when both tries of a renewal are slow. So it is short while
    responses take milliseconds. Others read the duration from the Lease.

    base: as set. answers: seconds that the last responses took.
    """

    base: Timing
    answers: tuple[float, ...] = ()

    @property
    def timing(self) -> Timing:
        asked = math.ceil(max(self.answers, default=0.0) * _LEASES_IN_ANSWERS)
        return Timing(max(self.base.lease_seconds, min(asked, _LONGEST_WHEN_SLOW_SECONDS)))

    def answered(self, seconds: float) -> "Pace":
        """Adds the time of a response, or of a timeout."""
        return replace(self, answers=(*self.answers, seconds)[-_REMEMBERED_ANSWERS:])


@dataclass(frozen=True, slots=True)
class Candidate:
    """Monotonic seconds. timing: of its last claim. may_write_until: for the fence. is_current: whether `seen` is stored."""

    identity: str
    timing: Timing
    seen: Lease | None = None
    unchanged_since: float = 0.0
    may_write_until: float = -math.inf
    is_current: bool = False

    @property
    def holds(self) -> bool:
        """Whether the Lease names this operator. It may write only before its deadline."""
        return self.seen is not None and self.seen.holder == self.identity

    @property
    def last_sign_of_life(self) -> float:
        """Until about when the previous holder was active: until it released the Lease, or could have renewed it again."""
        if self.seen is None or not self.seen.holder:
            return self.unchanged_since
        return self.unchanged_since + Timing(self._stated_seconds(self.seen)).renew_seconds

    def may_write(self, now: float) -> bool:
        return now < self.may_write_until

    def must_read(self, now: float) -> bool:
        """Whether the Lease has to be read before it is claimed. After the deadline the known version is not even tried."""
        return not (self.is_current and self.may_write(now))

    def saw(self, lease: Lease, now: float) -> "Candidate":
        """After reading the Lease, or a response to a write of it."""
        if not lease.version and self.seen is not None and self.seen.holder:
            lease = self._of_a_deleted_one(self.seen, now)
        if self.seen is not None and (lease.holder, lease.renewed) == (self.seen.holder, self.seen.renewed):
            return replace(self, seen=lease)
        return replace(self, seen=lease, unchanged_since=now)

    def _of_a_deleted_one(self, before: Lease, now: float) -> Lease:
        """The holder of a deleted Lease: this operator while it may write; else unknown, for the longest possible duration."""
        if self.may_write(now) or before.holder == _ANYBODY:
            return before._replace(version="")
        return before._replace(holder=_ANYBODY, version="", duration_seconds=LONGEST_LEASE_SECONDS)

    def wait_seconds(self, now: float) -> float:
        """Seconds until this operator may write the Lease: 0 if it holds it, or the Lease is free or expired."""
        if self.seen is None or self.holds or not self.seen.holder:
            return 0.0
        return max(0.0, self.unchanged_since + self._stated_seconds(self.seen) - now)

    def _stated_seconds(self, lease: Lease) -> int:
        return min(lease.duration_seconds or self.timing.lease_seconds, LONGEST_LEASE_SECONDS)

    def claiming(self, timing: Timing, now: float) -> "Candidate":
        """The state before a claim is sent: it may be stored from now on, even if the response is lost."""
        return replace(self, timing=timing, may_write_until=min(self.may_write_until, now + timing.deadline_seconds))

    def claim(self, now_text: str) -> Lease:
        """The Lease to write in order to acquire or renew it. now_text: wall clock, for people and to differ from the last."""
        before = self.seen or Lease()
        return before._replace(
            holder=self.identity,
            renewed=now_text,
            acquired=before.acquired if self.holds else now_text,
            duration_seconds=self.timing.lease_seconds,
            transitions=before.transitions + (0 if self.holds or not before.version else 1),
        )

    def claimed(self, written: Lease, sent_at: float, now: float) -> "Candidate":
        """The state after a response to a claim, stored as `written`. The deadline counts from the time of sending."""
        until = sent_at + self.timing.deadline_seconds
        return replace(self.saw(written, now), may_write_until=until, is_current=True)

    def unsure(self) -> "Candidate":
        """The state after a claim that failed or has no response: the stored Lease is unknown."""
        return replace(self, is_current=False)

    def stopped(self) -> "Candidate":
        """Without the right to write, until it has claimed the Lease again."""
        return replace(self, may_write_until=-math.inf, is_current=False)

    def release(self, now_text: str) -> Lease:
        """The Lease to write so that another candidate may take it at once."""
        return (self.seen or Lease())._replace(holder="", renewed=now_text, acquired=now_text)
