"""Makes the cache whole, and keeps it whole: lists of our own, each time a watch had to begin anew.

kopf hands over Nodes one by one and never says that these were all; and when it lists anew, it does not tell what is gone since.
So once its watch is open again, everything is listed here: whatever changed since the watch began comes by the watch, whatever
was before is in the list, and what neither has is gone. Our own watch asks for a list, and goes on from its version.
"""

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from nodedevice_api import names
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from nodedevice_operator.errors import ApiError, Forbidden, Unavailable, Unreachable
from nodedevice_operator.informers.store import Cache, Store
from nodedevice_operator.kube.api import Cluster, Listed
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.poddevice import PodDeviceRecord

log = logging.getLogger(__name__)

R = TypeVar("R", NodeRecord, NodeDeviceRecord, PodDeviceRecord)

NODES: Final = "nodes"
KINDS: Final = (NODES, names.NODE_DEVICES, names.POD_DEVICES)
_LONGEST_DELAY_SECONDS: Final = 15.0
_backoff: Final = wait_random_exponential(0.2, _LONGEST_DELAY_SECONDS)


class Sync:
    """The lists of our own. `begun` is called when kopf's watch began anew, and `work` does the rest."""

    def __init__(self, cache: Cache, cluster: Cluster, touch: Callable[[str], None]) -> None:
        self._cache = cache
        self._cluster = cluster
        self._touch = touch
        self._due: set[str] = set()
        self._wake = asyncio.Event()

    def begun(self, kind: str) -> None:
        """The watch of that kind (its plural) is open, after a list of kopf's."""
        self._due.add(kind)
        self._wake.set()

    async def work(self) -> None:
        """List what is due, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                await self.list_whole(self._due.pop())

    async def list_whole(self, kind: str) -> int:
        """Take in all objects of that kind (its plural); the version of the list. Tries until it is done."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ApiError), wait=_pause, before_sleep=lambda state: _tell_failure(kind, state)
        ):
            with attempt:
                return await self._list(kind)
        raise AssertionError("a retry without end has ended")

    async def _list(self, kind: str) -> int:
        was_complete = self._cache.is_complete
        changed, count, version = await self._take_in(kind)
        log.info("list is complete", extra={"kind": kind, "objects": count, "changed_nodes": len(changed)})
        if self._cache.is_complete:
            self._cache.whole.set()
            if not was_complete:
                # these records stay: looking through all of them again and again would hold up the loop for a tenth of a second
                gc.collect()
                gc.freeze()
            # until now nobody was judged, so everybody is to be
            for node in changed if was_complete else self._cache.names_of_nodes():
                self._touch(node)
        return version

    async def _take_in(self, kind: str) -> tuple[frozenset[str], int, int]:
        """Nodes about which something changed, how many objects there are, and the version of the list."""
        if kind == NODES:
            return _stored(self._cache.nodes, await self._cluster.list_nodes())
        if kind == names.NODE_DEVICES:
            return _stored(self._cache.node_devices, await self._cluster.list_node_devices())
        return _stored(self._cache.pod_devices, await self._cluster.list_pod_devices())


def _stored(store: Store[Any, R], listed: Listed[R]) -> tuple[frozenset[str], int, int]:
    changed = store.replace(listed.records, listed.version, listed.left_out)
    return changed, len(listed.records), listed.version


def _pause(state: RetryCallState) -> float:
    """Seconds until the next try: as long as the API server asks for, where that is longer."""
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.retry_after_seconds if isinstance(failure, Unavailable) else None
    return max(_backoff(state), asked or 0.0)


def _tell_failure(kind: str, state: RetryCallState) -> None:
    """Once: what is forbidden, and an API server that is away, is told by whoever watches over it."""
    failure = state.outcome.exception() if state.outcome else None
    if state.attempt_number == 1 and not isinstance(failure, (Forbidden, Unreachable)):
        log.warning("list failed and begins anew", extra={"kind": kind, "problem": str(failure)})
