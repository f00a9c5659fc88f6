"""Runs the built-in plugins of a node. A plugin that fails is restarted with a backoff and affects no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from nodedevice_common.tasks import apart, retried

from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RESCAN_SECONDS, RegisteredSocket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceSource, service_of
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity
from nodedevice_agent.plugins.contract import Plugin, part
from nodedevice_agent.plugins.room import Room
from nodedevice_agent.plugins.settings import PluginSettings

T = TypeVar("T")

log = logging.getLogger(__name__)


async def serve(
    source: DeviceSource,
    plugin_dir: Path,
    watcher: FileWatcher,
    rescan_seconds: float = RESCAN_SECONDS,
    while_served: Callable[[FileIdentity], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Serve one source in one plugin directory until cancelled.

    while_served: entered with each socket that was made. Raises CannotServe, OSError (the devices could not be read) or what the
    source raises.
    """
    socket = RegisteredSocket(
        source.resource_name,
        socket_name(source.resource_name),
        plugin_dir,
        watcher,
        make_service=partial(service_of, source),
        rescan_seconds=rescan_seconds,
        while_served=while_served,
    )
    await source.read()
    async with asyncio.TaskGroup() as group:
        group.create_task(source.run())
        group.create_task(socket.run())


class PluginRunner:
    """Serves the built-in plugins; the set of plugins may change at any time.

    Call run() until cancelled, and apply() before it or meanwhile.
    plugin_dir: where the device manager's kubelet.sock is or will be. state_dir: for files of the plugins.
    sockets: the served ones, for a device manager in this process.
    """

    def __init__(
        self, plugin_dir: Path, state_dir: Path, serve_source: Callable[..., Awaitable[None]] | None = None
    ) -> None:
        """serve_source: in place of serve()."""
        self.serve = serve_source or serve
        self.plugin_dir = plugin_dir
        self.state_dir = state_dir
        self.sockets = BuiltInSockets()
        self.room = Room()
        self._common: dict[object, Any] = {}
        self._wanted: dict[str, _Plugin] = {}
        self._running: dict[str, Node] = {}
        self._changed = asyncio.Event()

    def apply(self, settings: PluginSettings) -> None:
        """Run exactly these plugins from now on. A plugin with unchanged settings continues."""
        self._wanted = {plugin.name: _Plugin(kind, plugin, settings.host_root) for kind, _, plugin in settings.each()}
        self._changed.set()

    def common(self, make: Callable[..., T], *given: str) -> T:
        """Return an object that all plugins of the process share; the first call makes it."""
        if (make, *given) not in self._common:
            self._common[make, *given] = make(*given)
        made: T = self._common[make, *given]
        return made

    async def run(self) -> None:
        with FileWatcher() as watcher:
            # run again after a failure, none is left of before
            self._running.clear()
            if self._wanted:
                self._changed.set()
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    await self._reconcile(group, watcher)

    async def _reconcile(self, group: asyncio.TaskGroup, watcher: FileWatcher) -> None:
        # end plugins first: a resource may move from one plugin to another
        for name, running in list(self._running.items()):
            wanted = self._wanted.get(name)
            if wanted == running.plugin:
                continue
            if wanted is not None:
                # a plugin that fails with new settings is started again, and keeps no other from its own
                with apart("plugin settings", resource_name=name):
                    if running.take(wanted):
                        continue
            log.info("plugin ends: its settings have changed", extra={"resource_name": name})
            del self._running[name]
            await running.end()
            self.room.forget(name)
            self.sockets.unmatched.note(name, None)
        for name, plugin in self._wanted.items():
            if name not in self._running:
                running = self._running[name] = Node(plugin, self, watcher)
                running.task = group.create_task(until_ended(name, running.run))


class _Plugin(Struct, frozen=True):
    kind: str
    settings: Plugin
    host_root: str


class Node:
    """The node, for a plugin that serves resources.

    host_root: the host's file tree in the agent. state_dir: for the plugin's own files. room: how many devices it may list.
    sockets: provides the node's labels and the injector, and collects parts of settings without a device.
    common: see PluginRunner.
    """

    def __init__(self, plugin: _Plugin, runner: PluginRunner, watcher: FileWatcher) -> None:
        self.plugin = plugin
        self.host_root, self.state_dir, self.watcher = plugin.host_root, runner.state_dir, watcher
        self.room, self.sockets, self.common = runner.room, runner.sockets, runner.common
        self.task: asyncio.Task[None]
        self._serve, self._plugin_dir = runner.serve, runner.plugin_dir
        # for settings that continue the source's
        self._reconfigure: Callable[[Any], None] | None = None

    async def run(self) -> None:
        """Run with the current settings; called again after each failure."""
        # imported here: an agent saves the memory, and the time at its start, of plugins that its node does not have
        await part(self.plugin.kind, "serve").run(self.plugin.settings, self)

    async def serve(self, source: DeviceSource, reconfigure: Callable[[Any], None] | None = None) -> None:
        """Serve this source until cancelled. reconfigure: called with new settings that continue() the current ones.

        Raises CannotServe, OSError or the source's errors; run() is then called again.
        """
        self._reconfigure = reconfigure
        made = partial(self.sockets.made, resource_name=source.resource_name, scope=self.plugin.settings.scope)
        await self._serve(source, self._plugin_dir, self.watcher, while_served=made)

    def take(self, plugin: _Plugin) -> bool:
        """Go on with these settings, without a moment in which no device is listed; whether that is possible."""
        if plugin.host_root != self.host_root or not plugin.settings.continues(self.plugin.settings):
            return False
        self.plugin = plugin
        # None before there is a source, which begins with them
        if self._reconfigure is not None:
            self._reconfigure(plugin.settings)
        return True

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until_ended(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a plugin, or a part of one, for ever; its failure is its own."""
    await retried("plugin", run, CannotServe, resource_name=name)
