"""Passes the device lists of plugins to the device manager: at once, or later if there was no room for them.

A list that is refused for lack of room is held (held_lists.py), and read again once the manager has room for it.
"""

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from nodedevice_common.paced_log import PacedLog

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.effects import TakeList
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.devices import ListedDevices, unheld
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.held_lists import HeldLists

log = logging.getLogger(__name__)


class DeviceLists:
    """connections: open connections by endpoint. settle: called after each event of the manager.

    start: runs a task of the device manager. on_first: called when a connection has sent its first list.
    """

    def __init__(
        self,
        manager: DeviceManager,
        connections: Mapping[int, PluginConnection],
        settle: Callable[[], None],
        now: Callable[[], float],
        start: Callable[[Coroutine[Any, Any, None]], None],
        on_first: Callable[[int, PluginConnection], Awaitable[None]],
    ) -> None:
        self._manager = manager
        self._connections = connections
        self._settle = settle
        self._now = now
        self._start = start
        self._on_first = on_first
        # held while a long list is decoded
        self._turn = asyncio.Lock()
        self._held = HeldLists()
        self._lines = PacedLog(log)
        # one at a time; the other waiting lists are compressed
        self._taking = asyncio.Lock()

    async def follow(self, endpoint: int, connection: PluginConnection) -> None:
        """Pass its lists on until the stream ends. Raises PluginFailed if it ended with an error."""
        resource_name, id_error = connection.resource_name, ""
        is_first = True
        most = partial(self._manager.table.list_limit.most_devices, resource_name, endpoint)
        async for listed in connection.device_lists(self._turn, most):
            metrics.DEVICE_LISTS.labels(resource_name).inc()
            self._manager.listed(resource_name, endpoint, listed, self._now())
            self._settle()
            if endpoint not in self._connections:
                return  # its name has lost its place
            latest = self._manager.resources[resource_name].latest(endpoint)
            await self._hold(endpoint, connection, latest)
            earlier, id_error = id_error, latest.id_error
            if id_error not in ("", earlier):
                fields = {"resource_name": resource_name, "devices": listed.size.devices, "error": id_error}
                self._lines.log(logging.ERROR, "invalid device list", resource_name, **fields)
            if is_first:
                await self._on_first(endpoint, connection)
            is_first = False
            # the next one may never come
            del listed, latest

    async def _hold(self, endpoint: int, connection: PluginConnection, latest: ListedDevices) -> None:
        """latest: the list that was just received."""
        connection.last = latest
        if not latest.is_refused:
            if endpoint in self._held.by_endpoint:
                self._held.drop(endpoint)
        elif not await self._held.hold(endpoint, connection.resource_name, connection.octets):
            self._manager.listed(connection.resource_name, endpoint, unheld(latest), self._now())
            self._settle()
            # the same one again is read again
            connection.digest = b""
        elif self._manager.table.is_list_awaited(connection.resource_name, endpoint):
            # there was room before it was held
            self._start(self.take(TakeList(connection.resource_name, endpoint)))

    async def take(self, effect: TakeList) -> None:
        """The list that was refused for lack of room, if it is still the latest one."""
        endpoint = effect.endpoint
        extra = {"resource_name": effect.resource_name}
        connection, held = self._connections.get(endpoint), self._held.find(endpoint)
        if connection is None or held is None:
            return
        most = partial(self._manager.table.list_limit.most_devices, effect.resource_name, endpoint)
        try:
            async with self._taking:
                if self._held.find(endpoint) is not held:
                    return
                listed = await connection.decoded(zlib.decompress(held), self._turn, most)
        except Exception:
            # only this list fails, because it would fail at every start; the connection stays open
            log.exception("reading a refused device list failed, a bug in this agent", extra=extra)
            self._held.drop(endpoint)
            self._manager.listed(effect.resource_name, endpoint, unheld(connection.last), self._now())
            self._settle()
            return
        if self._connections.get(endpoint) is not connection or self._held.find(endpoint) is not held:
            return
        self._manager.listed(effect.resource_name, endpoint, listed, self._now())
        self._settle()
        connection.last = self._manager.resources[effect.resource_name].latest(endpoint)
        if not connection.last.is_refused:
            self._held.drop(endpoint)
            event, devices = "held device list accepted; there is room again", len(listed.ids)
            self._lines.log(logging.INFO, event, effect.resource_name, **extra, devices=devices)

    def drop(self, endpoint: int) -> None:
        """The connection has ended."""
        self._held.drop(endpoint)
