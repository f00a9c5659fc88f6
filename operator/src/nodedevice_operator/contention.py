"""Decides how often to restore a field that others keep changing: the third change within a minute is on purpose. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from nodedevice_common.pacing import exponential_seconds

# Three changes within this many seconds are contention, not an accident.
CONTENTION_WINDOW_SECONDS: Final = 60.0
CONTENTION_CHANGES: Final = 3
# How long the operator pauses its writes of a contended object, doubled each time up to the longest.
FIRST_BACKOFF_SECONDS: Final = 60.0
LONGEST_BACKOFF_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Contention:
    """Monotonic seconds. repairs: recent writes. pauses: how many in a row. paused_until: when it may be written again."""

    repairs: tuple[float, ...] = ()
    pauses: int = 0
    paused_until: float = 0.0

    def undone(self, now: float) -> "Contention":
        """Notes a foreign change; starts a pause if the object was restored twice within the last minute."""
        if now < self.paused_until or len(self._lately(now)) + 1 < CONTENTION_CHANGES:
            return self
        return self.paused(now)

    def paused(self, now: float) -> "Contention":
        # quiet for as long as the longest pause: the next contention is another one
        pauses = self.pauses + 1 if now - self.paused_until < LONGEST_BACKOFF_SECONDS else 1
        seconds = exponential_seconds(pauses - 1, FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
        return Contention((), pauses, now + seconds)

    def repaired(self, now: float) -> "Contention":
        return replace(self, repairs=(*self._lately(now), now))

    def _lately(self, now: float) -> tuple[float, ...]:
        return tuple(at for at in self.repairs if now - at < CONTENTION_WINDOW_SECONDS)

    def wait_seconds(self, now: float) -> float:
        """How long the foreign change stays; 0 if the object may be written now."""
        return max(0.0, self.paused_until - now)
