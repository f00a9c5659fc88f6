"""The work queue of nodes to reconcile: order, parallelism, and retries with backoff.

Each node is reconciled by one worker at a time: enqueued during a reconcile, it is reconciled again afterwards; enqueued several
times, once. Changed nodes go first, then all nodes, which a new leader reconciles, then deferred work. A node with dozens of
objects rests between reconciles, many times as long, but not for the first ones after a pause: a node whose token writes without
end does not delay others, and a change on such a node is not delayed. While this operator does not lead, the queue stops and keeps
its order: a short lapse of the Lease costs only its own time.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from nodedevice_common.pacing import exponential_seconds, jittered
from nodedevice_kube.api_errors import ApiError, Unauthorized, Unreachable

from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics

log = logging.getLogger(__name__)

# The first retry is for a failure that another reconcile settles; the later ones for an API server that is away.
_FIRST_DELAY_SECONDS: Final = 0.05
_LONGEST_DELAY_SECONDS: Final = 30.0
_WARN_AFTER_FAILURES: Final = 3

# So many workers take only urgent nodes: they stay free however long deferred work takes.
_URGENT_ONLY_WORKERS: Final = 6
# More at a time would delay the capacity write of a node that changes then.
_MOST_DEFERRED: Final = 42
# So few workers take deferred nodes while an urgent one is queued or running: a slow API server would give each the same share. A
# fast one responds in milliseconds, and two workers then reconcile hundreds a second.
_DEFERRED_BESIDE_URGENT: Final = 2
# One in so many picks is a deferred node, so that it gets its turn while urgent nodes keep coming.
_DEFERRED_TURN: Final = 8

# How long a node rests for each object that it has: several times what a reconcile takes for it.
REST_SECONDS_OF_OBJECT: Final = 0.001
# with fewer objects it never does
_LIGHT: Final = 32
LONGEST_REST_SECONDS: Final = 10.0
# After a pause so much rest is left out: a plugin that registers or stops makes several reconciles in a row.
REST_LEFT_OUT_SECONDS: Final = 1.0

# Reconciles one node, and returns in how many seconds to reconcile it again: None when enqueued, 0 deferred.
Reconcile = Callable[[str], Awaitable[float | None]]


class WorkQueue:
    """fence: the queue stops while it is closed; None: always open. weight: how many objects a node has."""

    def __init__(
        self, metrics: Metrics, fence: WriteFence | None = None, weight: Callable[[str], int] = lambda node: 0
    ) -> None:
        self._metrics = metrics
        self._fence = fence
        self._weight = weight
        # of nodes that are not light (seconds of the loop)
        self._rests_until: dict[str, float] = {}
        # In order. A node is in one of them; enqueueing moves it from a later queue to an earlier one. _changed has the time of the
        # last change, by the clock of the fence.
        self._changed: dict[str, float] = {}
        self._resync: dict[str, None] = {}
        self._deferred: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._workers = 0
        self._deferred_running = 0
        self._picks = 0
        self._running: set[str] = set()
        self._enqueued_while_running: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        metrics.waiting_nodes.set_function(self._waiting)
        metrics.failing_nodes.set_function(self._failing)

    @property
    def _is_open(self) -> bool:
        return self._fence is None or self._fence.is_open

    def _waiting(self) -> int:
        """How many nodes wait for this operator; 0 on a standby, whose nodes wait for the leader."""
        return len(self._changed) + len(self._resync) + len(self._deferred) if self._is_open else 0

    def _failing(self) -> int:
        """How many nodes this operator failed to reconcile last; 0 on a standby, which retries none of them."""
        return len(self._failures) if self._is_open else 0

    @property
    def is_crowded(self) -> bool:
        return self._is_urgent_queued or self._urgent_running > 1

    @property
    def _is_urgent_queued(self) -> bool:
        return bool(self._changed or self._resync)

    @property
    def _urgent_running(self) -> int:
        return len(self._running) - self._deferred_running

    def has_changed_since(self, node: str) -> bool:
        """Whether that node, which is being reconciled, has been enqueued again meanwhile."""
        return node in self._enqueued_while_running

    def enqueue(self, node: str) -> None:
        """Reconcile that node now, or once it has rested."""
        if node in self._running:
            self._enqueued_while_running.add(node)
        elif (seconds := self._rest_seconds(node)) > 0.0:
            self.enqueue_after(node, seconds)
        else:
            self._resync.pop(node, None)
            self._deferred.pop(node, None)
            self._changed[node] = self._fence.clock() if self._fence is not None else 0.0
            self._wake.set()

    def discard(self, node: str) -> None:
        for by_node in (self._changed, self._resync, self._deferred, self._rests_until, self._failures):
            by_node.pop(node, None)
        timer = self._timers.pop(node, None)
        if timer is not None:
            timer.cancel()

    def resume(self) -> None:
        self._wake.set()

    def restart(self, nodes: Collection[str], since: float) -> None:
        """Queues exactly these nodes: first the ones that changed at `since`, by the fence's clock, or later."""
        self._changed = {node: at for node, at in self._changed.items() if at >= since and node in nodes}
        self._deferred.clear()
        self._resync = {node: None for node in nodes if node not in self._changed and node not in self._running}
        self._enqueued_while_running |= self._running & set(nodes)
        self._failures = {node: count for node, count in self._failures.items() if node in nodes}
        self._wake.set()

    def enqueue_after(self, node: str, seconds: float) -> None:
        """Reconcile that node in so many seconds; of several such calls the earliest counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(node)
        if timer is not None and not timer.cancelled() and timer.when() <= loop.time() + seconds:
            return
        if timer is not None:
            timer.cancel()
        self._timers[node] = loop.call_later(max(seconds, 0.0), self._timer_fired, node)

    def retry_now(self) -> None:
        for node in self._failures:
            timer = self._timers.pop(node, None)
            if timer is not None:
                timer.cancel()
            self.enqueue(node)

    async def work(self, reconcile: Reconcile) -> None:
        """Reconcile one node after the other, for ever. Several workers share the queue."""
        self._workers += 1
        while True:
            node, is_deferred = await self._next()
            self._running.add(node)
            self._deferred_running += is_deferred
            try:
                await self._run(reconcile, node)
            finally:
                self._running.discard(node)
                self._deferred_running -= is_deferred
                self._rest(node)
                self._wake.set()
                if node in self._enqueued_while_running:
                    self._enqueued_while_running.discard(node)
                    self.enqueue(node)
            # A reconcile with nothing to do never yields to the event loop: thousands in a row would block the watches.
            await asyncio.sleep(0)

    def _rest(self, node: str) -> None:
        weight = self._weight(node)
        if weight > _LIGHT:
            seconds = min(weight * REST_SECONDS_OF_OBJECT, LONGEST_REST_SECONDS)
            now = asyncio.get_running_loop().time()
            earliest = now - REST_LEFT_OUT_SECONDS
            # deferred reconciles do not wait for their rest, which must not add up
            before = min(self._rests_until.get(node, earliest), now)
            self._rests_until[node] = max(earliest, before) + seconds
        else:
            self._rests_until.pop(node, None)

    def _rest_seconds(self, node: str) -> float:
        until = self._rests_until.get(node)
        seconds = 0.0 if until is None else until - asyncio.get_running_loop().time()
        # a timer may fire that much too soon
        return seconds if seconds > REST_SECONDS_OF_OBJECT else 0.0

    async def _next(self) -> tuple[str, bool]:
        """The next node, and whether it was deferred."""
        while True:
            picked = self._pick() if self._is_open else None
            if picked is not None:
                return picked
            self._wake.clear()
            await self._wake.wait()

    def _pick(self) -> tuple[str, bool] | None:
        self._picks += 1
        is_turn = not self._is_urgent_queued or self._picks % _DEFERRED_TURN == 0
        is_deferred = bool(self._deferred) and is_turn and self._deferred_running < self._deferred_workers()
        queue: dict[str, Any] = self._deferred if is_deferred else self._changed or self._resync
        if not queue:
            return None
        node = next(iter(queue))  # the one that has waited longest
        del queue[node]
        return node, is_deferred

    def _deferred_workers(self) -> int:
        workers = max(1, min(self._workers - _URGENT_ONLY_WORKERS, _MOST_DEFERRED))
        is_urgent = self._is_urgent_queued or self._urgent_running
        return min(workers, _DEFERRED_BESIDE_URGENT) if is_urgent else workers

    def defer(self, node: str) -> None:
        """Reconcile that node once no changed node waits."""
        if node in self._enqueued_while_running:
            return  # the reconcile that follows does all of it
        self._deferred[node] = None
        self._wake.set()

    async def _run(self, reconcile: Reconcile, node: str) -> None:
        try:
            with self._metrics.reconcile_seconds.time():
                seconds = await reconcile(node)
        except ApiError as error:
            self._retry(node, error)
        except Exception:
            log.exception("reconcile failed unexpectedly; retrying", extra={"node": node})
            self._retry(node, None)
        else:
            self._failures.pop(node, None)
            if seconds == 0:
                self.defer(node)
            elif seconds is not None:
                self.enqueue_after(node, seconds)

    def _retry(self, node: str, error: ApiError | None) -> None:
        self._metrics.reconcile_failures.inc()
        attempt = self._failures.get(node, 0) + 1
        self._failures[node] = attempt
        delay = exponential_seconds(attempt - 1, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
        delay = max(delay, error.retry_after_seconds if error else 0.0)
        # an outage of the API server ends for all nodes at once: spread the retries
        delay = jittered(delay, 0.2, random.random())
        # A first failure is usually settled by the retry. Failures that all requests share are logged by ApiHealth.
        is_for_all = isinstance(error, Unreachable | Unauthorized)
        level = logging.WARNING if attempt == _WARN_AFTER_FAILURES and not is_for_all else logging.DEBUG
        fields = {"node": node, "error": str(error), "attempt": attempt, "retry_in_seconds": round(delay, 3)}
        log.log(level, "reconcile failed; retrying", extra=fields)
        self.enqueue_after(node, delay)

    def _timer_fired(self, node: str) -> None:
        self._timers.pop(node, None)
        self.enqueue(node)
