"""Dials a device plugin again whose stream has ended.

Unlike the kubelet, which waits until the plugin registers: many plugins never register again as long as kubelet.sock stays.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from nodedevice_common.pacing import exponential_seconds
from nodedevice_common.tasks import retried

from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.filesystem import is_served

# Within this time a plugin that ends has removed its socket or stopped serving, and a starting one has registered.
REDIAL_SECONDS = 1.0
# ... of a plugin whose streams end again and again
MOST_REDIAL_SECONDS = 60.0


class Redials(Struct, eq=False):
    """connect: connects to a plugin by the name of its socket, unless it is connected or may not be. Raises PluginFailed."""

    connect: Callable[[PluginConnection, str], Awaitable[None]]
    _plugins: set[tuple[Path, str]] = set()

    async def redial(self, lost: PluginConnection, socket: Path | None) -> None:
        """socket: where it serves in the plugin directory; None if the watcher of the registry directory contacts it again."""
        plugin = (lost.socket, lost.resource_name)
        if plugin in self._plugins:
            return
        self._plugins.add(plugin)
        try:
            if socket is None:
                await _pause(lost)
                lost.on_ended()
            elif _may_be_served(socket):
                # Until this ends, the next start of the agent also dials the plugin.
                fields = {"resource_name": lost.resource_name, "socket": lost.socket.name}
                await retried("plugin connection", partial(self._dial, lost, socket), PluginFailed, **fields)
        finally:
            self._plugins.discard(plugin)

    async def _dial(self, lost: PluginConnection, socket: Path) -> None:
        """Raises PluginFailed, OSError."""
        await _pause(lost)
        if is_served(socket):
            await self.connect(lost, socket.name)


async def _pause(lost: PluginConnection) -> None:
    """The pause grows if each stream ends soon."""
    await asyncio.sleep(exponential_seconds(lost.ended_before, REDIAL_SECONDS, MOST_REDIAL_SECONDS))


def _may_be_served(socket: Path) -> bool:
    """Whether a process listens on the socket; true if unknown."""
    try:
        return is_served(socket)
    except OSError:
        return True
