"""Runs all built-in plugins of a node. One that fails is started again later and takes no other down."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nodedevice_common.backoff import Backoff

from nodedevice_agent.lib.deviceplugin_server.server import DeviceSource
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

if TYPE_CHECKING:
    from nodedevice_agent.plugins.nvml.source import NvmlSource

from nodedevice_agent.lib.deviceplugin_server.names import socket_name
from nodedevice_agent.lib.deviceplugin_server.registered_socket import Pace, RegisteredSocket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DevicePluginService, options

log = logging.getLogger(__name__)

_FIRST_RESTART_SECONDS = 1.0
_LAST_RESTART_SECONDS = 60.0
# A plugin that ran this long was well: its next failure begins with a short pause again.
_WELL_AFTER_SECONDS = 120.0

MakeSource = Callable[[], DeviceSource]


async def run_plugins(settings: PluginSettings, plugin_dir: Path, state_dir: Path) -> None:
    """Serve every plugin of the settings until cancelled.

    plugin_dir: where the device manager's kubelet.sock is or will be. state_dir: holds what the simulated plugin keeps.
    """
    with FileWatcher() as watcher:
        async with asyncio.TaskGroup() as group:
            for resource_name, make in _makers(settings, state_dir, watcher).items():
                group.create_task(_keep_running(resource_name, make, plugin_dir, watcher))
            if settings.nvml is not None:
                group.create_task(_run_gpus(settings.nvml, settings.host_root, plugin_dir, state_dir, watcher))


async def _run_gpus(
    settings: NvmlSettings, host_root: str, plugin_dir: Path, state_dir: Path, watcher: FileWatcher
) -> None:
    """One watch for all resource names; each is served from the moment that there is something to serve."""
    # here, because agents of nodes without GPUs, which are most, need not have it in memory
    from nodedevice_agent.plugins.nvml.watch import GpuWatch

    watch = GpuWatch(settings, host_root, state_dir, watcher)
    async with asyncio.TaskGroup() as group:
        group.create_task(_again_and_again("GPUs", watch.run))
        for source in watch.sources:
            group.create_task(_serve_when_wanted(source, plugin_dir, watcher))


async def _serve_when_wanted(source: "NvmlSource", plugin_dir: Path, watcher: FileWatcher) -> None:
    await source.is_wanted.wait()
    await _keep_running(source.resource_name, lambda: source, plugin_dir, watcher)


def _makers(settings: PluginSettings, state_dir: Path, watcher: FileWatcher) -> dict[str, MakeSource]:
    """How to make the source of each resource, anew after each failure."""
    makers: dict[str, MakeSource] = {}
    for generic in settings.generic:
        makers[generic.resource_name] = partial(GenericSource, generic, settings.host_root, watcher)
    for simulated in settings.simulated:
        makers[simulated.resource_name] = partial(SimulatedSource, simulated, state_dir, watcher)
    return makers


async def _keep_running(resource_name: str, make: MakeSource, plugin_dir: Path, watcher: FileWatcher) -> None:
    await _again_and_again(resource_name, lambda: BuiltinPlugin(make(), plugin_dir, watcher).run())


async def _again_and_again(resource_name: str, run: Callable[[], Awaitable[None]]) -> None:
    pauses = Backoff(_FIRST_RESTART_SECONDS, _LAST_RESTART_SECONDS)
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await run()
        except Exception as error:
            if loop.time() - began > _WELL_AFTER_SECONDS:
                pauses.reset()
            pause = pauses.next()
            _tell(resource_name, _innermost(error), pause)
            await asyncio.sleep(pause)


def _tell(resource_name: str, error: BaseException, pause_seconds: float) -> None:
    extra = {"resource_name": resource_name, "error": str(error), "again_in_seconds": pause_seconds}
    # what the node is to blame for needs no trace; anything else is a fault of ours
    is_known = isinstance(error, CannotServe | OSError)
    log.error("plugin failed; it will be started again", extra=extra, exc_info=None if is_known else error)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class BuiltinPlugin:
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
