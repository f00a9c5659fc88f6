"""Which of several operators may write: the one that holds a Lease, and only as long as it is sure to hold it.

A holder renews the Lease; another takes it once it was not seen to change for as long as the holder said it lasts, or at
once when its holder has cleared it. Ages are counted by everybody's own monotonic clock, from when a change was seen, so no
two clocks are compared. Resource versions decide between two who write at the same moment.
"""

from dataclasses import dataclass, replace
from typing import Final

# What stands in a Lease may have been written by hand; longer than any setting allows, nobody waits.
LONGEST_LEASE_SECONDS: Final = 60
SHORTEST_LEASE_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class LeaderLease:
    """The Lease as it is stored. `holder` "": nobody; `version` "": it is not there. Times are the API's own text."""

    holder: str = ""
    renewed: str = ""
    acquired: str = ""
    duration_seconds: int = 0
    transitions: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the Lease lasts for others; all else is a part of that.

    The holder stops writing a quarter of the time before anybody else may begin: what is on its way by then has arrived.
    """

    lease_seconds: int

    @property
    def deadline_seconds(self) -> float:
        """How long a renewal lets its sender write, from when it was sent."""
        return self.lease_seconds * 0.75

    @property
    def renew_seconds(self) -> float:
        return self.lease_seconds / 4

    @property
    def look_seconds(self) -> float:
        """How often those look who do not hold it: so soon after it was cleared it is taken."""
        return self.lease_seconds / 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One operator, what it saw of the Lease last, and since when it looks like that (monotonic seconds)."""

    identity: str
    timing: Timing
    seen: LeaderLease | None = None
    unchanged_since: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the Lease names us; whether we may still write is a matter of the deadline."""
        return self.seen is not None and self.seen.holder == self.identity

    @property
    def last_sign_of_life(self) -> float:
        """Until about when the holder before us was at work: until it cleared the Lease, or could have renewed it again."""
        may_have_worked = self.timing.renew_seconds if self.seen is not None and self.seen.holder else 0.0
        return self.unchanged_since + may_have_worked

    def saw(self, lease: LeaderLease, now: float) -> "Candidate":
        """After a look at the Lease, or an answer to a write of it."""
        if not lease.version and self.seen is not None and self.seen.holder:
            # somebody deleted it; its holder may write until its time is over all the same
            lease = replace(self.seen, version="")
        if self.seen is not None and (lease.holder, lease.renewed) == (self.seen.holder, self.seen.renewed):
            return replace(self, seen=lease)
        return replace(self, seen=lease, unchanged_since=now)

    def wait_seconds(self, now: float) -> float:
        """How long until we may write the Lease: 0 where it is ours, nobody's, or has run out."""
        if self.seen is None or self.holds or not self.seen.holder:
            return 0.0
        stated = self.seen.duration_seconds or self.timing.lease_seconds
        return max(0.0, self.unchanged_since + min(stated, LONGEST_LEASE_SECONDS) - now)

    def claim(self, now_text: str) -> LeaderLease:
        """The Lease to write so as to take it, or to keep it. now_text: wall clock, for people and to differ from the last."""
        before = self.seen or LeaderLease()
        return replace(
            before,
            holder=self.identity,
            renewed=now_text,
            acquired=before.acquired if self.holds else now_text,
            duration_seconds=self.timing.lease_seconds,
            transitions=before.transitions + (0 if self.holds or not before.version else 1),
        )

    def release(self, now_text: str) -> LeaderLease:
        """The Lease to write so that anybody may take it at once."""
        return replace(self.seen or LeaderLease(), holder="", renewed=now_text, acquired=now_text)
