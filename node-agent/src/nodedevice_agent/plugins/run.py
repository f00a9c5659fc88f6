"""Runs the built-in plugins of a node. A plugin that fails is restarted with a backoff and affects no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from nodedevice_common.tasks import apart, retried

from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RESCAN_SECONDS, RegisteredSocket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceSource, service_of
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.room import Room
from nodedevice_agent.plugins.settings import GPUS, SCOPE, GenericSettings, PluginSettings, SimulatedSettings

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
    """Serves the built-in plugins; which ones may change at any time. run() until cancelled, apply() before it or meanwhile.

    plugin_dir: where the device manager's kubelet.sock is or will be. state_dir: for files of simulated and nvml.
    sockets: those that are served, for a device manager in this process.
    """

    def __init__(self, plugin_dir: Path, state_dir: Path) -> None:
        self._plugin_dir = plugin_dir
        self._state_dir = state_dir
        self.sockets = BuiltInSockets()
        # of device files
        self._file_reads = FileReads()
        self._room = Room()
        # by where the host's file tree is
        self._sysfs: dict[str, Any] = {}
        self._wanted: dict[str, _Plugin] = {}
        self._running: dict[str, _Running] = {}
        self._changed = asyncio.Event()

    def apply(self, settings: PluginSettings) -> None:
        """From now on exactly these. One whose settings are as before runs on."""
        root = settings.host_root
        wanted = {each.resource_name: _Plugin(each, root) for each in settings.generic}
        wanted |= {each.resource_name: _Plugin(each, root) for each in settings.simulated}
        if settings.nvml is not None:
            wanted[GPUS] = _Plugin(settings.nvml, root)
        self._wanted = wanted
        self._changed.set()

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
        # those that end first: a resource may pass from one plugin to another
        for name, running in list(self._running.items()):
            wanted = self._wanted.get(name)
            if wanted != running.plugin and not (wanted is not None and self._takes(name, running, wanted)):
                log.info("plugin ends: its settings have changed", extra={"resource_name": name})
                del self._running[name]
                await running.end()
                self._room.forget(name)
                self.sockets.unmatched.note(name, None)
        for name, plugin in self._wanted.items():
            if name not in self._running:
                running = self._running[name] = _Running(plugin)
                running.task = group.create_task(self._serve(name, running, watcher))

    def _takes(self, name: str, running: "_Running", wanted: "_Plugin") -> bool:
        """Whether it goes on with these settings; one that fails with them is started again, and keeps no other from its own."""
        with apart("plugin settings", resource_name=name):
            return running.take(wanted)
        return False

    async def _serve(self, name: str, running: "_Running", watcher: FileWatcher) -> None:
        settings = running.plugin.settings
        if isinstance(settings, NvmlSettings):
            await retried("gpus", partial(self._run_gpus, settings, running.plugin.host_root, watcher))
        else:
            make = partial(running.make, self._state_dir, watcher, self._shared(running.plugin.host_root))
            made = partial(self.sockets.made, resource_name=name, scope=f"{SCOPE} {name}")
            await _served(name, lambda: serve(make(), self._plugin_dir, watcher, while_served=made))

    def _shared(self, host_root: str) -> "_Shared":
        return _Shared(self._file_reads, self._room, self._sysfs, host_root, self.sockets.unmatched.note)

    async def _run_gpus(self, settings: NvmlSettings, host_root: str, watcher: FileWatcher) -> None:
        """One watch for all resource names; each name is served as soon as it has something to list."""
        from nodedevice_agent.plugins.nvml.watch import GpuWatch

        sockets = self.sockets
        watch = GpuWatch(settings, host_root, self._state_dir, watcher, sockets.delivery, sockets.node_labels)
        async with asyncio.TaskGroup() as group:
            group.create_task(_served(GPUS, watch.run))
            while True:
                source = await watch.wanted.get()
                made = partial(self.sockets.made, resource_name=source.resource_name, scope=f"{SCOPE} {GPUS}")
                serving = partial(serve, source, self._plugin_dir, watcher, while_served=made)
                group.create_task(_served(source.resource_name, serving))


class _Plugin(Struct, frozen=True):
    settings: GenericSettings | SimulatedSettings | NvmlSettings
    host_root: str


class _Shared(Struct, frozen=True):
    """What the plugins of device files have in common."""

    file_reads: FileReads
    room: Room
    by_root: dict[str, Any]
    host_root: str
    note_unmatched: Callable[[str, Sequence[int] | None], None]

    def sysfs(self) -> Any:
        from nodedevice_agent.plugins.generic.shared_sysfs import SharedSysfs

        root = self.host_root.rstrip("/")
        return self.by_root.setdefault(root, SharedSysfs(root))


class _Running:
    """A plugin that is served."""

    def __init__(self, plugin: _Plugin) -> None:
        self.plugin = plugin
        self.task: asyncio.Task[None]
        # for settings of the same kind
        self._reconfigure: Callable[[Any], None] | None = None

    def make(self, state_dir: Path, watcher: FileWatcher, shared: "_Shared") -> DeviceSource:
        """A source with the current settings; called again after each failure."""
        # imported here, as below: an agent saves the memory, and the time at its start, of plugins that its node does not have
        settings = self.plugin.settings
        if isinstance(settings, GenericSettings):
            from nodedevice_agent.plugins.generic.source import GenericSource

            generic = GenericSource(
                settings, self.plugin.host_root, watcher, state_dir, shared.file_reads, shared.room, shared.sysfs()
            )
            generic.note_unmatched = shared.note_unmatched
            self._reconfigure = generic.reconfigure
            return generic
        assert isinstance(settings, SimulatedSettings)
        from nodedevice_agent.plugins.simulated.source import SimulatedSource

        simulated = SimulatedSource(settings, state_dir, watcher, shared.room)
        self._reconfigure = simulated.reconfigure
        return simulated

    def take(self, plugin: _Plugin) -> bool:
        """Go on with these settings, without a moment in which no device is listed; whether that is possible."""
        new, old = plugin.settings, self.plugin.settings
        if isinstance(new, NvmlSettings) or isinstance(old, NvmlSettings):
            return False
        if _registered(new) != _registered(old) or plugin.host_root != self.plugin.host_root:
            return False
        self.plugin = plugin
        # None before there is a source, which begins with them
        if self._reconfigure is not None:
            self._reconfigure(new)
        return True

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def _registered(settings: GenericSettings | SimulatedSettings) -> tuple[object, ...]:
    """What the device manager learns when a plugin registers, and not again."""
    prefers = isinstance(settings, SimulatedSettings) and settings.numa_nodes > 0
    return type(settings), settings.part_rules, prefers


async def run_plugins(settings: PluginSettings, plugin_dir: Path, state_dir: Path) -> None:
    """Serve these until cancelled; directories as in PluginRunner."""
    runner = PluginRunner(plugin_dir, state_dir)
    runner.apply(settings)
    await runner.run()


async def _served(resource_name: str, run: Callable[[], Awaitable[None]]) -> None:
    """One plugin, for ever; its failure is its own."""
    await retried("plugin", run, CannotServe, resource_name=resource_name)
