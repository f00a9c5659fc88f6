"""Ends the process when a watch is stale: open, and not delivering what the API server has.

From time to time the metadata of every object is listed, page by page, and compared with the stores. An object that the list shows
at a newer version, and that is still not stored at that version some seconds later, was not delivered. A restart repairs that.
"""

import asyncio
import logging
import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

from nodedevice_kube.api_errors import ApiError

from nodedevice_operator.errors import StaleWatch
from nodedevice_operator.informers.store import Stores
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.lists import KINDS, Cluster, Kind

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
# After an outage a watch may wait some time before it reconnects; the process must not exit for that.
_RECOVERY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Undelivered:
    kind: Kind[Any]
    key: Hashable
    uid: str
    version: int


@dataclass(eq=False, slots=True)
class Watchdog:
    """Compares the stores with the API server from time to time. interval_seconds: 0 for never."""

    cache: Stores
    cluster: Cluster
    health: ApiHealth
    interval_seconds: float
    patience_seconds: float = PATIENCE_SECONDS
    kinds: tuple[Kind[Any], ...] = KINDS

    async def work(self) -> None:
        """Check, for ever. Raises StaleWatch."""
        if not self.interval_seconds:
            await asyncio.Event().wait()
        await self.cache.synced.wait()
        while True:
            await asyncio.sleep(self.interval_seconds)
            try:
                await self._check()
            except ApiError as error:
                log.debug("staleness check failed", extra={"error": str(error)})

    async def _check(self) -> None:
        """Lists all, waits, and checks that watches delivered all of it. Raises StaleWatch, or ApiError if the list fails."""
        began = time.monotonic()
        undelivered = [found for kind in self.kinds for found in await self._undelivered(kind)]
        if not undelivered:
            return
        await asyncio.sleep(self.patience_seconds)
        late = [found for found in undelivered if self._is_undelivered(found)]
        if not late or self.health.seconds_since_outage() < time.monotonic() - began + _RECOVERY_SECONDS:
            return
        for found in late:
            if await self._is_still_there(found):
                name = "/".join(found.key) if isinstance(found.key, tuple) else str(found.key)
                log.error("watch is stale", extra={"kind": found.kind.name, "object": name, "objects": len(late)})
                raise StaleWatch(found.kind.name, name, found.version, self.patience_seconds)

    async def _undelivered(self, kind: Kind[Any]) -> list[_Undelivered]:
        found: list[_Undelivered] = []
        async for page in self.cluster.list_versions(kind):
            listed = (_Undelivered(kind, key, uid, version) for key, (uid, version) in page.items())
            found += [item for item in listed if self._is_undelivered(item)]
        return found

    def _is_undelivered(self, item: _Undelivered) -> bool:
        store = self.cache.stores[item.kind.name]
        if store.is_gone(item.uid) or store.is_invalid(item.key):
            return False
        held = store.get(item.key)
        return held is None or held.resource_version < item.version

    async def _is_still_there(self, item: _Undelivered) -> bool:
        """Whether that object exists and can be decoded: one that cannot is logged elsewhere, and never stored."""
        namespace, name = item.key if isinstance(item.key, tuple) else ("", str(item.key))
        return item.uid in await self.cluster.find(item.kind, namespace, name)
