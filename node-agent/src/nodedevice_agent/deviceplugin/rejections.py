"""Registrations that were refused: counted, logged, and told beyond this node, on the agent's Lease.

There may be no NodeDevice to tell it on: a name that is wrong has none. The Lease is the agent's own, and the operator reads it
anyway: it makes an Event on the Node of each refusal that is new.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from nodedevice_agent import metrics

log = logging.getLogger(__name__)

# A plugin that is refused comes again, most within a minute: what has not been said for so long is over.
_LASTING_SECONDS = 600.0
_MOST = 5
_LONGEST = 400


class Refusals:
    """The last few, each once. is_news: set when there is one that `told` has not told yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # by what was said: when it was said last, the latest at the end
        self._said_at: dict[str, float] = {}
        self.is_news = asyncio.Event()

    def add(self, reason: str, error: Exception, **where: str) -> None:
        """reason: one word, for the metric."""
        metrics.REGISTRATIONS_REFUSED.labels(reason).inc()
        log.error("registration refused", extra={**where, "error": str(error)})
        text = " ".join(str(error).split())[:_LONGEST]
        if self._said_at.pop(text, None) is None:
            self.is_news.set()
        self._said_at[text] = self._clock()
        if len(self._said_at) > _MOST:
            del self._said_at[next(iter(self._said_at))]

    def told(self) -> str:
        """What is to be told now, a line each, in an order that stays."""
        self.is_news.clear()
        earliest = self._clock() - _LASTING_SECONDS
        self._said_at = {text: at for text, at in self._said_at.items() if at > earliest}
        return "\n".join(sorted(self._said_at))
