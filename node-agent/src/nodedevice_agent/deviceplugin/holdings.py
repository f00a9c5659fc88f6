"""Sends the holdings of a resource to a device plugin that requires them: once after it has connected, and when one has ended.

One call is in flight at a time. Allocate waits for it: the plugin could remove resources of that Allocate, because the holdings
do not include it yet.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct, field
from nodedevice_common.pacing import Backoff

from nodedevice_agent.devicemanager.holdings import Holding, SyncedHoldings, holdings
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.errors import PluginFailed

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0


class HoldingsSync(Struct, eq=False):
    """connection: of a name, for a call; may raise PluginFailed. changed: set for a moment when the manager may have changed."""

    manager: DeviceManager
    resource_name: str
    connection: Callable[[str, str], PluginConnection]
    changed: asyncio.Event
    _synced: SyncedHoldings = field(default_factory=SyncedHoldings)
    # not set while a Sync is in flight
    _is_idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._is_idle.set()

    @asynccontextmanager
    async def allocating(self, pod_uid: str, container: str) -> AsyncIterator[None]:
        """While Allocate is called: from when no Sync is in flight, and the call may be sent, until it has returned."""
        await self._is_idle.wait()
        with self._synced.allocating((pod_uid, container)):
            yield

    async def run(self) -> None:
        """Runs until the resource is forgotten."""
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        while (resource := self.manager.resources.get(self.resource_name)) is not None:
            current = holdings(self.manager, self.resource_name)
            endpoint = resource.newest.endpoint if resource.newest.options.holdings_required else None
            if current is None or endpoint is None or not self._synced.is_due(endpoint, current):
                await self.changed.wait()
                continue
            try:
                await self._send(current)
            except PluginFailed as exc:
                delay = backoff.next()
                extra = {"resource_name": self.resource_name, "error": str(exc), "retry_in_seconds": delay}
                log.warning("sending holdings to device plugin failed; retrying", extra=extra)
                await asyncio.sleep(delay)
            else:
                self._synced.synced(endpoint, current)
                backoff.reset()

    async def _send(self, current: tuple[Holding, ...]) -> None:
        """Raises PluginFailed."""
        self._is_idle.clear()
        try:
            await self.connection(self.resource_name, "Sync").sync_holdings(current)
        finally:
            self._is_idle.set()
