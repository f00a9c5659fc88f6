"""Passes the device lists of plugins to the device manager: at once, or when there is room for them (held_lists.py)."""

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec import Struct, field
from nodedevice_common.paced_log import PacedLog

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.effects import TakeList
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.devices import ListedDevices, unheld
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.held_lists import HeldList, hold

log = logging.getLogger(__name__)


class DeviceLists(Struct, eq=False):
    """connections: open connections by endpoint. settle: called after each event of the manager.

    start: runs a task of the device manager. on_first: called when a connection has sent its first list.
    """

    manager: DeviceManager
    connections: Mapping[int, PluginConnection]
    settle: Callable[[], None]
    now: Callable[[], float]
    start: Callable[[Coroutine[Any, Any, None]], None]
    on_first: Callable[[int, PluginConnection], Awaitable[None]]
    # held while a long list is decoded
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _held: dict[int, HeldList] = {}
    _lines: PacedLog = field(default_factory=partial(PacedLog, log))
    # one at a time; the other waiting lists are compressed
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def follow(self, endpoint: int, connection: PluginConnection) -> None:
        """Pass its lists on until the stream ends. Raises PluginFailed if it ended with an error."""
        resource_name, id_error, is_first = connection.resource_name, "", True
        most = partial(self.manager.table.list_limit.most_devices, resource_name, endpoint)
        async for listed in connection.device_lists(self._turn, most):
            metrics.DEVICE_LISTS.labels(resource_name).inc()
            self.manager.listed(resource_name, endpoint, listed, self.now())
            self.settle()
            if endpoint not in self.connections:
                return  # its name has lost its place
            latest = self.manager.resources[resource_name].latest(endpoint)
            await self._hold(endpoint, connection, latest)
            earlier, id_error = id_error, latest.id_error
            if id_error not in ("", earlier):
                fields = {"resource_name": resource_name, "devices": listed.size.devices, "error": id_error}
                self._lines.log(logging.ERROR, "invalid device list", resource_name, **fields)
            if is_first:
                await self.on_first(endpoint, connection)
            is_first = False
            # the next one may never come
            del listed, latest

    async def _hold(self, endpoint: int, connection: PluginConnection, latest: ListedDevices) -> None:
        """latest: the list that was just received."""
        connection.last = latest
        if not latest.is_refused:
            self._held.pop(endpoint, None)
        elif not await hold(self._held, endpoint, connection.resource_name, connection.octets):
            self.manager.listed(connection.resource_name, endpoint, unheld(latest), self.now())
            self.settle()
            # the same one again is read again
            connection.digest = b""
        elif self.manager.table.is_list_awaited(connection.resource_name, endpoint):
            # there was room before it was held
            self.start(self.take(TakeList(connection.resource_name, endpoint)))

    async def take(self, effect: TakeList) -> None:
        """The list that was refused for lack of room, if it is still the latest one."""
        endpoint = effect.endpoint
        extra = {"resource_name": effect.resource_name}
        connection, held = self.connections.get(endpoint), self._held.get(endpoint)
        if connection is None or held is None:
            return
        most = partial(self.manager.table.list_limit.most_devices, effect.resource_name, endpoint)
        try:
            async with self._taking:
                if self._held.get(endpoint) is not held:
                    return
                listed = await connection.decoded(zlib.decompress(held[1]), self._turn, most)
        except Exception:
            # only this list fails, because it would fail at every start; the connection stays open
            log.exception("reading a refused device list failed, a bug in this agent", extra=extra)
            self._held.pop(endpoint, None)
            self.manager.listed(effect.resource_name, endpoint, unheld(connection.last), self.now())
            self.settle()
            return
        if self.connections.get(endpoint) is not connection or self._held.get(endpoint) is not held:
            return
        self.manager.listed(effect.resource_name, endpoint, listed, self.now())
        self.settle()
        connection.last = self.manager.resources[effect.resource_name].latest(endpoint)
        if not connection.last.is_refused:
            self._held.pop(endpoint, None)
            event, devices = "held device list accepted; there is room again", len(listed.ids)
            self._lines.log(logging.INFO, event, effect.resource_name, **extra, devices=devices)

    def drop(self, endpoint: int) -> None:
        """The connection has ended."""
        self._held.pop(endpoint, None)
