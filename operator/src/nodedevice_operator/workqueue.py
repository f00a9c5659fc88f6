"""One look at a node at a time: who asks for it, how many run side by side, and when a failed one is repeated.

Knows nothing of what a look does. A node that is asked for while it is looked at gets another look afterwards; asked for
several times it gets one. All nodes at once, which is what a new leader looks at, stand behind each that has changed; and what
can wait does so in a queue behind both, so that it holds up nobody when the API server is slow.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from nodedevice_common.backoff import exponential_seconds
from nodedevice_common.jitter import jittered

from nodedevice_operator.errors import ApiError, Unauthorized, Unavailable, Unreachable
from nodedevice_operator.metrics.metrics import Metrics

log = logging.getLogger(__name__)

# The first repeat is for what another look settles; the later ones for an API server that is away.
_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 30.0
_SPREAD: Final = 0.2
_TELL_AFTER: Final = 3

# So many workers take only what is due at once: however long the rest takes, they are there for it.
_KEPT_FREE: Final = 6
# And so few take anything else while something due at once is under way: an API server that has too little for both would give
# each the same share. One that has enough answers in milliseconds, and then two are hundreds a second.
_BESIDE_URGENT: Final = 2
# Of so many looks one is at a node that can wait, so that it comes to its turn in a rush without end.
_PATIENT_TURN: Final = 8

Look = Callable[[str], Awaitable[float | None]]


class Reconciler:
    """Three queues of nodes: those that changed, all the others when all are to be looked at, and those that can wait.

    `look` is given a name and says in how many seconds to come again: None when asked to, 0 as soon as nobody else waits.
    """

    def __init__(self, look: Look, metrics: Metrics) -> None:
        self._look = look
        self._metrics = metrics
        # in order, and each node in one of them; who is asked for while it waits in a later one is moved to an earlier
        self._changed: dict[str, None] = {}
        self._all: dict[str, None] = {}
        self._patient: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._workers = 0
        self._patient_looks = 0
        self._picks = 0
        self._running: set[str] = set()
        self._asked_again: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        metrics.waiting_nodes.set_function(lambda: len(self._changed) + len(self._all) + len(self._patient))
        metrics.failing_nodes.set_function(lambda: len(self._failures))

    @property
    def is_crowded(self) -> bool:
        """Whether more than one look is due at once: waiting, or under way."""
        return self._is_due or self._urgent_looks > 1

    @property
    def _is_due(self) -> bool:
        return bool(self._changed or self._all)

    @property
    def _urgent_looks(self) -> int:
        return len(self._running) - self._patient_looks

    def touch(self, node: str) -> None:
        """Ask for a look at that node, now."""
        if node in self._running:
            self._asked_again.add(node)
        else:
            self._all.pop(node, None)
            self._patient.pop(node, None)
            self._changed[node] = None
            self._wake.set()

    def touch_all(self, nodes: Iterable[str]) -> None:
        """Ask for a look at all of these, now; one that changes meanwhile does not wait for the others."""
        for node in nodes:
            if node in self._running:
                self._asked_again.add(node)
            elif node not in self._changed:
                self._patient.pop(node, None)
                self._all[node] = None
        self._wake.set()

    def touch_later(self, node: str, seconds: float) -> None:
        """Ask for a look in so many seconds; of several such wishes the soonest counts."""
        loop = asyncio.get_running_loop()
        waiting = self._timers.get(node)
        if waiting is not None and not waiting.cancelled() and waiting.when() <= loop.time() + seconds:
            return
        if waiting is not None:
            waiting.cancel()
        self._timers[node] = loop.call_later(max(seconds, 0.0), self._ring, node)

    def retry_now(self) -> None:
        """Look again at once wherever a look failed: what they failed of is over."""
        for node in self._failures:
            waiting = self._timers.pop(node, None)
            if waiting is not None:
                waiting.cancel()
            self.touch(node)

    async def work(self) -> None:
        """Look at one node after the other, for ever. Several of these share the queues."""
        self._workers += 1
        while True:
            node, can_wait = await self._next()
            self._running.add(node)
            self._patient_looks += can_wait
            try:
                await self._look_once(node)
            finally:
                self._running.discard(node)
                self._patient_looks -= can_wait
                self._wake.set()
                if node in self._asked_again:
                    self._asked_again.discard(node)
                    self.touch(node)
            # a look that finds nothing to do waits for nothing: thousands in a row would keep changes from being heard of
            await asyncio.sleep(0)

    async def _next(self) -> tuple[str, bool]:
        """Who is looked at next, and whether that one was among those that can wait."""
        while True:
            picked = self._pick()
            if picked is not None:
                return picked
            self._wake.clear()
            await self._wake.wait()

    def _pick(self) -> tuple[str, bool] | None:
        self._picks += 1
        has_place = self._patient_looks < self._patient_places()
        is_turn = not self._is_due or self._picks % _PATIENT_TURN == 0
        if self._patient and has_place and is_turn:
            return _pop(self._patient), True
        due = self._changed or self._all
        return (_pop(due), False) if due else None

    def _patient_places(self) -> int:
        places = max(1, self._workers - _KEPT_FREE)
        return min(places, _BESIDE_URGENT) if self._is_due or self._urgent_looks else places

    def _touch_patiently(self, node: str) -> None:
        if node in self._asked_again:
            return  # the look that was asked for meanwhile does all of it
        self._patient[node] = None
        self._wake.set()

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
            if again == 0:
                self._touch_patiently(node)
            elif again is not None:
                self.touch_later(node, again)

    def _repeat(self, node: str, error: ApiError | None) -> None:
        self._metrics.reconcile_failures.inc()
        failures = self._failures.get(node, 0) + 1
        self._failures[node] = failures
        delay = exponential_seconds(failures - 1, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
        if isinstance(error, Unavailable) and error.retry_after_seconds:
            delay = max(delay, error.retry_after_seconds)
        # an outage of the API server ends for all nodes at once: they come back spread out
        delay = jittered(delay, _SPREAD)
        # one failure is what the next look settles; what all fail of is told by whoever watches over the API server
        is_for_all = isinstance(error, Unreachable | Unauthorized)
        level = logging.WARNING if failures == _TELL_AFTER and not is_for_all else logging.DEBUG
        log.log(level, "look at node is repeated", extra={"node": node, "problem": str(error), "failures": failures})
        self.touch_later(node, delay)

    def _ring(self, node: str) -> None:
        self._timers.pop(node, None)
        self.touch(node)


def _pop(queue: dict[str, None]) -> str:
    """The longest waiting."""
    node = next(iter(queue))
    del queue[node]
    return node
