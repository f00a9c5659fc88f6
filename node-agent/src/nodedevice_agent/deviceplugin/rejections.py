"""Rejected registrations: counted, logged, and reported on the agent's Lease.

An invalid resource name has no NodeDevice that could show it. The Lease is the agent's own, and the operator reads it anyway: it
creates an Event on the Node for each new rejection.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from nodedevice_agent import metrics

log = logging.getLogger(__name__)

# A rejected plugin tries again, mostly within a minute: one that has not for so long has given up.
_EXPIRY_SECONDS = 600.0
_MAX_REJECTIONS = 5
_MAX_CHARACTERS = 400


class Rejections:
    """The last few, each once. changed: set when there is one that report() has not returned yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # by text: when it last occurred, the latest at the end
        self._last_at: dict[str, float] = {}
        self.changed = asyncio.Event()

    def add(self, reason: str, error: Exception, **where: str) -> None:
        """reason: one word, for the metric."""
        metrics.REGISTRATIONS_REFUSED.labels(reason).inc()
        log.error("registration rejected", extra={**where, "error": str(error)})
        text = " ".join(str(error).split())[:_MAX_CHARACTERS]
        if self._last_at.pop(text, None) is None:
            self.changed.set()
        self._last_at[text] = self._clock()
        if len(self._last_at) > _MAX_REJECTIONS:
            del self._last_at[next(iter(self._last_at))]

    def report(self) -> str:
        """The current ones, a line each, in a stable order."""
        self.changed.clear()
        earliest = self._clock() - _EXPIRY_SECONDS
        self._last_at = {text: at for text, at in self._last_at.items() if at > earliest}
        return "\n".join(sorted(self._last_at))
