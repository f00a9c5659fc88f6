"""How often what others undo is written again: at once, but not without end. Pure.

Two changes within a minute may be accidents, the third is somebody who means it. Of a Node's resources, capacity/ownership.py
counts by writer, and keeps that in the Node's history.
"""

from dataclasses import dataclass, replace
from typing import Final

from nodedevice_common.pacing import exponential_seconds

# Three changes within this many seconds are contention, not an accident.
CONTENTION_WINDOW_SECONDS: Final = 60.0
CONTENTION_CHANGES: Final = 3
# How long the operator backs off from what is contended, doubled each time up to the longest.
FIRST_BACKOFF_SECONDS: Final = 60.0
LONGEST_BACKOFF_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Contention:
    """What others have undone of one object. Times are monotonic seconds.

    repairs: when it was written again, lately. pauses: how many in a row. paused_until: when it may be written again.
    """

    repairs: tuple[float, ...] = ()
    pauses: int = 0
    paused_until: float = 0.0

    def undone(self, now: float) -> "Contention":
        """It was found changed: with a pause from now on, where it was written again twice within the last minute."""
        if now < self.paused_until or len(self._lately(now)) + 1 < CONTENTION_CHANGES:
            return self
        # quiet for as long as the longest pause: the next contention is another one
        pauses = self.pauses + 1 if now - self.paused_until < LONGEST_BACKOFF_SECONDS else 1
        seconds = exponential_seconds(pauses - 1, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
        return Contention((), pauses, now + seconds)

    def repaired(self, now: float) -> "Contention":
        """It was written again."""
        return replace(self, repairs=(*self._lately(now), now))

    def _lately(self, now: float) -> tuple[float, ...]:
        return tuple(at for at in self.repairs if now - at < CONTENTION_WINDOW_SECONDS)

    def wait_seconds(self, now: float) -> float:
        """How long it stays as others want it; 0: it may be written now."""
        return max(0.0, self.paused_until - now)
