"""At a start: the plugins that were registered when the agent ended are dialled on their own sockets.

Only then are the directory's sockets removed, as the kubelet does. An open connection survives that, so a plugin that never
registers again keeps serving, and one that does (because its socket vanished) replaces its own connection.
On purpose unlike the kubelet, which waits for every plugin to register again: some never do.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from nodedevice_agent.devicemanager.state import PluginSocket
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.unix_sockets import is_served

log = logging.getLogger(__name__)

# All at once and short: nobody can register meanwhile.
DEADLINE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A plugin that answered. socket_name: under which it is found again, see PluginDirectory.keep."""

    connection: PluginConnection
    socket_name: str


async def reach_back(directory: PluginDirectory, sockets: Iterable[PluginSocket]) -> list[Reached]:
    """Dial these, then clear the directory. Who does not answer in time is as if never asked: it can register anew."""
    answers = await asyncio.gather(*(_dial(directory, socket) for socket in dict.fromkeys(sockets)))
    reached = [answer for answer in answers if answer is not None]
    directory.clear(but=frozenset(found.socket_name for found in reached))
    return reached


async def _dial(directory: PluginDirectory, socket: PluginSocket) -> Reached | None:
    path = directory.path / socket.name
    if not is_served(path):
        return None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            connection = await PluginConnection.open(socket.resource_name, path)
    except (TimeoutError, PluginFailed) as exc:
        extra = {"resource_name": socket.resource_name, "socket": socket.name, "error": str(exc) or "no answer"}
        log.warning("a plugin of before the restart does not answer; it has to register again", extra=extra)
        return None
    return Reached(connection, directory.keep(socket.name))
