"""One look at a node at a time: who asks for it, how many run side by side, and when a failed one is repeated.

Knows nothing of what a look does. A node that is asked for while it is looked at gets another look afterwards; asked for
several times it gets one.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.errors import ApiError, Unavailable, Unreachable

log = logging.getLogger(__name__)

# The first repeat is for what another look settles; the later ones for an API server that is away.
_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 30.0
_TELL_AFTER: Final = 3
_CROWD: Final = 50

Look = Callable[[str], Awaitable[float | None]]


class Reconciler:
    """A queue of nodes. `look` is given a name and says in how many seconds to come again (None: when asked to)."""

    def __init__(self, look: Look, metrics: Metrics) -> None:
        self._look = look
        self._metrics = metrics
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._running: set[str] = set()
        self._asked_again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether more nodes wait than are soon looked at."""
        return self._queue.qsize() > _CROWD

    def touch(self, node: str) -> None:
        """Ask for a look at that node, now."""
        if node in self._running:
            self._asked_again.add(node)
        elif node not in self._queued:
            self._queued.add(node)
            self._queue.put_nowait(node)

    def touch_later(self, node: str, seconds: float) -> None:
        """Ask for a look in so many seconds; of several such wishes the soonest counts."""
        loop = asyncio.get_running_loop()
        waiting = self._timers.get(node)
        if waiting is not None and not waiting.cancelled() and waiting.when() <= loop.time() + seconds:
            return
        if waiting is not None:
            waiting.cancel()
        self._timers[node] = loop.call_later(max(seconds, 0.0), self._ring, node)

    async def work(self) -> None:
        """Look at one node after the other, for ever. Several of these share the queue."""
        while True:
            node = await self._queue.get()
            self._queued.discard(node)
            self._running.add(node)
            try:
                await self._look_once(node)
            finally:
                self._running.discard(node)
                if node in self._asked_again:
                    self._asked_again.discard(node)
                    self.touch(node)

    async def _look_once(self, node: str) -> None:
        try:
            with self._metrics.reconcile_seconds.time():
                again = await self._look(node)
        except ApiError as error:
            self._repeat(node, error)
        except Exception:
            log.exception("look at node failed", extra={"node": node})
            self._repeat(node, None)
        else:
            self._failures.pop(node, None)
            if again is not None:
                self.touch_later(node, again)

    def _repeat(self, node: str, error: ApiError | None) -> None:
        self._metrics.reconcile_failures.inc()
        failures = self._failures.get(node, 0) + 1
        self._failures[node] = failures
        delay = min(_FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16), _LONGEST_DELAY_SECONDS)
        if isinstance(error, Unavailable) and error.retry_after_seconds:
            delay = max(delay, error.retry_after_seconds)
        # an outage of the API server ends for all nodes at once: they come back spread out
        delay *= random.uniform(0.8, 1.2)
        # one failure is what the next look settles; an outage is told by whoever watches over the API server
        level = logging.WARNING if failures == _TELL_AFTER and not isinstance(error, Unreachable) else logging.DEBUG
        log.log(level, "look at node is repeated", extra={"node": node, "problem": str(error), "failures": failures})
        self.touch_later(node, delay)

    def _ring(self, node: str) -> None:
        self._timers.pop(node, None)
        self.touch(node)
