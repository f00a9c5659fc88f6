"""One built-in plugin's life: its source kept right, and served and registered in a plugin directory."""

import asyncio
from functools import partial
from pathlib import Path

from nodedevice_agent.lib.deviceplugin_server.registered_socket import Pace, RegisteredSocket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe
from nodedevice_agent.lib.deviceplugin_server.service import DevicePluginService, options
from nodedevice_agent.lib.deviceplugin_server.socket_names import socket_name
from nodedevice_agent.lib.deviceplugin_server.source import DeviceSource
from nodedevice_agent.lib.file_watcher import FileWatcher

__all__ = ["CannotServe", "Pace", "PluginHost"]


class PluginHost:
    """Serves one source in one plugin directory until cancelled."""

    def __init__(self, source: DeviceSource, plugin_dir: Path, watcher: FileWatcher, pace: Pace | None = None) -> None:
        """Raises CannotServe."""
        self._source = source
        self._socket = RegisteredSocket(
            source.resource_name,
            socket_name(source.resource_name),
            plugin_dir,
            watcher,
            pace or Pace(),
            make_service=partial(DevicePluginService, source),
            options=partial(options, source),
        )

    async def run(self) -> None:
        """Raises CannotServe, OSError (the first look at the devices failed) or what the source raises."""
        self._source.refresh()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run())
            group.create_task(self._socket.run())
