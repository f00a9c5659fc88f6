"""Somebody else who keeps writing what is ours: put right at once the first few times, then with growing pauses.

Two agents with one node name would otherwise write as fast as the API server answers, without end. Keeps count; writes nothing.
"""

import logging
import time
from collections.abc import Callable

from nodedevice_agent.kube.retry import pause_seconds

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
# a hand that edits, and edits again
FREE = 3
# new allocations wait as long to be published
_LONGEST_PAUSE_SECONDS = 10.0


class Contest:
    """Over one NodeDevice's status."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        # of the last minute
        self._edited_at: list[float] = []
        self._said_at = -WINDOW_SECONDS

    def edited(self) -> None:
        """Somebody did it once more. Said each time, and once a minute where it does not end."""
        now = self._clock()
        self._edited_at = [*self._lately(), now]
        if len(self._edited_at) <= FREE:
            log.warning("status was changed by somebody else; it is put right", extra={"nodedevice": self._name})
        elif now - self._said_at >= WINDOW_SECONDS:
            self._said_at = now
            log.error(
                "somebody else keeps changing the status; end any other agent that has this --node-name",
                extra={"nodedevice": self._name, "times_in_the_last_minute": len(self._edited_at)},
            )

    def pause_seconds(self) -> float:
        """Before the next write."""
        excess = len(self._lately()) - FREE
        return min(pause_seconds(excess), _LONGEST_PAUSE_SECONDS) if excess > 0 else 0.0

    def _lately(self) -> list[float]:
        earliest = self._clock() - WINDOW_SECONDS
        return [at for at in self._edited_at if at > earliest]
