"""Evicts the pods that core.evictions names, by the Eviction API, so that PodDisruptionBudgets are honoured.

A pod is read first: it must be that pod, on that node, and not on its way out already. An agent is not believed blindly.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from nodedevice_operator.errors import ApiError, Conflict, NotFound, NotLeading, Unavailable
from nodedevice_operator.events.transitions import WARNING, Event, EventReason, about_pod
from nodedevice_operator.evictions import policy as evictions
from nodedevice_operator.evictions.api import EvictionsApi
from nodedevice_operator.evictions.policy import Book, Policy, Sufferer
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import is_real

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0


class EvictionWork:
    """The task; it does nothing where every resource is only reported."""

    def __init__(
        self,
        cache: Cache,
        api: EvictionsApi,
        tell: Callable[[Event], None],
        policies: Mapping[str, Policy],
        *,
        delay_seconds: float,
        per_minute: float,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._api = api
        self._tell = tell
        self._policies = policies
        self._delay_seconds = delay_seconds
        self._per_minute = per_minute
        self._leads = leads
        self._clock = clock
        self._book = Book({})

    async def work(self) -> None:
        """Look, evict, and so on, for ever."""
        while True:
            if self._leads() and self._cache.is_complete and "evict" in self._policies.values():
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """One look at every NodeDevice, and the evictions that are due."""
        found = evictions.sufferers(filter(is_real, self._cache.node_devices.values()), self._policies)
        self._book = evictions.look(
            self._book, found, self._clock(), delay_seconds=self._delay_seconds, per_minute=self._per_minute
        )
        for uid in evictions.due(self._book, self._clock()):
            try:
                await self._try(found[uid])
            except NotLeading:
                return

    async def _try(self, pod: Sufferer) -> None:
        refused: ApiError | None = None
        try:
            if await self._is_to_go(pod):
                await self._api.evict_pod(pod.namespace, pod.name, pod.uid)
                log.warning("pod evicted", extra={"namespace": pod.namespace, "pod": pod.name, "why": pod.why})
                self._post(pod, EventReason.POD_EVICTED, f"evicted from {pod.node}: {pod.why}")
        except (NotFound, Conflict):
            log.debug("pod was gone already", extra={"namespace": pod.namespace, "pod": pod.name})
        except NotLeading:
            raise
        except ApiError as error:
            refused = error
            self._tell_refusal(pod, error)
        after = refused.retry_after_seconds if isinstance(refused, Unavailable) else None
        is_refused = refused is not None
        self._book = evictions.tried(
            self._book, pod.uid, self._clock(), is_refused=is_refused, retry_after_seconds=after
        )

    async def _is_to_go(self, pod: Sufferer) -> bool:
        """Raises NotFound."""
        there = await self._api.read_pod(pod.namespace, pod.name)
        return there.uid == pod.uid and there.node == pod.node and not there.is_ending

    def _tell_refusal(self, pod: Sufferer, error: ApiError) -> None:
        """Once a pod: it is tried again for as long as it takes."""
        if self._book.cases[pod.uid].refusals:
            return
        fields = {"namespace": pod.namespace, "pod": pod.name, "why": pod.why, "problem": error.problem}
        log.warning("pod cannot be evicted yet; trying again", extra=fields)
        self._post(pod, EventReason.EVICTION_REFUSED, f"to be evicted, as {pod.why}; not yet: {error.problem}")

    def _post(self, pod: Sufferer, reason: str, message: str) -> None:
        self._tell(Event(about_pod(pod.namespace, pod.name, pod.uid), WARNING, reason, message))
