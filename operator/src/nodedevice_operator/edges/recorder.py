"""Posts Kubernetes Events, behind everything else: an Event that cannot be posted is lost, counted, and holds up nothing."""

import asyncio
import logging
import secrets
from typing import Final

from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_attempt, wait_exponential

from nodedevice_operator.core.events import Event
from nodedevice_operator.edges.cluster import Cluster
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.errors import ApiError, Conflict, NotFound, Unavailable, Unreachable

log = logging.getLogger(__name__)

# In an outage the newest are kept up to this many: what they tell of is still true then.
_MOST_WAITING: Final = 1000
_ATTEMPTS: Final = 4


class Recorder:
    """A queue of Events and the task that posts them."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._queue: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)

    def post(self, event: Event) -> None:
        """Hand over an Event; the oldest waiting one is given up when there are too many."""
        if self._queue.full():
            self._lose(self._queue.get_nowait(), "too many Events wait")
        self._queue.put_nowait(event)

    async def work(self) -> None:
        """Post one Event after the other, for ever."""
        while True:
            event = await self._queue.get()
            try:
                if await self._is_real(event):
                    await self._post(event)
            except Conflict:
                # an attempt that seemed lost had arrived: the name is random, so it can only be that
                log.debug("Event was posted already", extra={"reason": event.reason})
            except RetryError as error:
                self._lose(event, str(error.last_attempt.exception()))
            except ApiError as error:
                self._lose(event, error.problem)
            except Exception:
                log.exception("Event not posted", extra={"reason": event.reason, "object": event.about.name})
                self._metrics.events_lost.inc()

    async def _post(self, event: Event) -> None:
        suffix = secrets.token_hex(8)
        passing = retry_if_exception_type((Unreachable, Unavailable))
        wait = wait_exponential(multiplier=0.5, max=10)
        async for attempt in AsyncRetrying(retry=passing, wait=wait, stop=stop_after_attempt(_ATTEMPTS)):
            with attempt:
                await self._cluster.post_event(event, suffix)

    async def _is_real(self, event: Event) -> bool:
        """Whether the pod that the Event is on runs where the Event comes from: an agent is not believed blindly."""
        if event.on_node is None:
            return True
        try:
            pod = await self._cluster.read_pod(event.about.namespace, event.about.name)
        except NotFound:
            return False
        return pod.uid == event.about.uid and pod.node == event.on_node

    def _lose(self, event: Event, problem: str) -> None:
        self._metrics.events_lost.inc()
        log.warning(
            "Event not posted",
            extra={"reason": event.reason, "kind": event.about.kind, "object": event.about.name, "problem": problem},
        )
