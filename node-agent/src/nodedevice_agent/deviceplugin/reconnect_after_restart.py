"""Reconnects to the device plugins from before a restart."""

import asyncio
import logging
from collections.abc import Iterable

from nodedevice_agent.devicemanager.records.checkpoint import PluginSocket
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory, registered_name
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.filesystem import is_served

log = logging.getLogger(__name__)

# The limit of all connections together. It is short because no plugin can register meanwhile.
RECONNECT_SECONDS = 1.0


async def reconnect(directory: PluginDirectory, sockets: Iterable[PluginSocket]) -> list[tuple[PluginConnection, str]]:
    """Reconnect to the plugins that were registered when the agent ended, then clear the directory.

    Returns the connections, each with the plugin's name for the next start (PluginDirectory.keep). An open connection survives
    the clearing. So a plugin that never registers again keeps serving, unlike with the kubelet, and one that registers because
    its socket vanished replaces its own connection.
    """
    dialled = await asyncio.gather(*(_reopened(directory, socket) for socket in dict.fromkeys(sockets)))
    kept = [(connection, directory.keep(name)) for connection, name in dialled if connection is not None]
    directory.clear(but=frozenset(name for _, name in kept))
    return kept


async def _reopened(directory: PluginDirectory, socket: PluginSocket) -> tuple[PluginConnection | None, str]:
    """The connection, if the plugin responds, and the name of the socket's file."""
    if not is_served(directory.path / socket.name):
        return None, socket.name
    path = directory.path / registered_name(socket.name)
    try:
        async with asyncio.timeout(RECONNECT_SECONDS):
            return await PluginConnection.open(socket.resource_name, path, socket.name), socket.name
    except (TimeoutError, PluginFailed) as exc:
        extra = {"resource_name": socket.resource_name, "socket": socket.name, "error": str(exc) or "timeout"}
        log.warning("could not reconnect to device plugin after restart; waiting for it to re-register", extra=extra)
        return None, socket.name
