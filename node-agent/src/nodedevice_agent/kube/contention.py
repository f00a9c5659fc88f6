"""Slows the agent down when another client keeps overwriting the status of its NodeDevices."""

import logging
import time
from collections.abc import Callable

from nodedevice_agent.kube.retries import pause_seconds

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
# edits within the window that are undone immediately: a person may edit twice
FREE_EDITS = 3
# new allocations wait as long to be published
LONGEST_PAUSE_SECONDS = 10.0


class Contention:
    """Counts the edits of other clients to the status of one NodeDevice, and sets the pause before each is undone.

    The first few edits are undone at once. Without pauses, two agents with one node name would write in an endless loop.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        # within the window
        self._edited_at: list[float] = []
        self._logged_at = -WINDOW_SECONDS

    def edited(self) -> None:
        """Count an edit. The first few are logged each, then one line a minute."""
        now = self._clock()
        self._edited_at = [*self._recent(), now]
        if len(self._edited_at) <= FREE_EDITS:
            log.warning(
                "NodeDevice status was modified by another client; restoring it", extra={"nodedevice": self._name}
            )
        elif now - self._logged_at >= WINDOW_SECONDS:
            self._logged_at = now
            log.error(
                "conflict: another client keeps modifying the NodeDevice status; stop any other agent that has this --node-name",
                extra={"nodedevice": self._name, "edits_in_the_last_minute": len(self._edited_at)},
            )

    def pause_seconds(self) -> float:
        excess = len(self._recent()) - FREE_EDITS
        return min(pause_seconds(excess), LONGEST_PAUSE_SECONDS) if excess > 0 else 0.0

    def _recent(self) -> list[float]:
        earliest = self._clock() - WINDOW_SECONDS
        return [at for at in self._edited_at if at > earliest]
