"""Reconnects at the start to the plugins that were registered when the agent ended.

Only then are the directory's sockets removed, as the kubelet does. An open connection survives that, so a plugin that never
registers again keeps serving, and one that does (because its socket vanished) replaces its own connection.
Unlike the kubelet, which waits for every plugin to register again: some never do.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from nodedevice_agent.devicemanager.allocation.allocations import PluginSocket
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.filesystem import is_served

log = logging.getLogger(__name__)

# Concurrent and short: no plugin can register meanwhile.
DEADLINE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReconnectedPlugin:
    """socket_name: where the next start finds the plugin, see PluginDirectory.keep."""

    connection: PluginConnection
    socket_name: str


async def reconnect(directory: PluginDirectory, sockets: Iterable[PluginSocket]) -> list[ReconnectedPlugin]:
    """Dial these, then clear the directory. A plugin that does not respond in time can register again."""
    results = await asyncio.gather(*(_dial(directory, socket) for socket in dict.fromkeys(sockets)))
    plugins = [plugin for plugin in results if plugin is not None]
    directory.clear(but=frozenset(plugin.socket_name for plugin in plugins))
    return plugins


async def _dial(directory: PluginDirectory, socket: PluginSocket) -> ReconnectedPlugin | None:
    path = directory.path / socket.name
    if not is_served(path):
        return None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            connection = await PluginConnection.open(socket.resource_name, path)
    except (TimeoutError, PluginFailed) as exc:
        extra = {"resource_name": socket.resource_name, "socket": socket.name, "error": str(exc) or "timeout"}
        log.warning("could not reconnect to device plugin after restart; waiting for it to re-register", extra=extra)
        return None
    return ReconnectedPlugin(connection, directory.keep(socket.name))
