"""Runs the built-in plugins of a node. A plugin that fails is restarted with a backoff and affects no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from nodedevice_common.pacing import Backoff

from nodedevice_agent.lib.deviceplugin_server.registered_socket import RESCAN_SECONDS, RegisteredSocket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceSource, service_of
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

log = logging.getLogger(__name__)

_FIRST_RESTART_SECONDS = 1.0
_MAX_RESTART_SECONDS = 60.0
# A plugin that ran this long was healthy: its next failure starts with the first delay again.
_HEALTHY_AFTER_SECONDS = 120.0


async def serve(
    source: DeviceSource, plugin_dir: Path, watcher: FileWatcher, rescan_seconds: float = RESCAN_SECONDS
) -> None:
    """Serve one source in one plugin directory until cancelled.

    Raises CannotServe, OSError (the devices could not be read) or what the source raises.
    """
    socket = RegisteredSocket(
        source.resource_name,
        socket_name(source.resource_name),
        plugin_dir,
        watcher,
        make_service=partial(service_of, source),
        rescan_seconds=rescan_seconds,
    )
    source.refresh()
    async with asyncio.TaskGroup() as group:
        group.create_task(source.run())
        group.create_task(socket.run())


async def run_plugins(settings: PluginSettings, plugin_dir: Path, state_dir: Path) -> None:
    """Serve every plugin of the settings until cancelled.

    plugin_dir: where the device manager's kubelet.sock is or will be. state_dir: for files of simulated and nvml.
    """
    with FileWatcher() as watcher:
        async with asyncio.TaskGroup() as group:
            for generic in settings.generic:
                make_generic = partial(GenericSource, generic, settings.host_root, watcher)
                group.create_task(_keep_serving(generic.resource_name, make_generic, plugin_dir, watcher))
            for simulated in settings.simulated:
                make_simulated = partial(SimulatedSource, simulated, state_dir, watcher)
                group.create_task(_keep_serving(simulated.resource_name, make_simulated, plugin_dir, watcher))
            if settings.nvml is not None:
                group.create_task(_run_gpus(settings.nvml, settings.host_root, plugin_dir, state_dir, watcher))


async def _run_gpus(
    settings: NvmlSettings, host_root: str, plugin_dir: Path, state_dir: Path, watcher: FileWatcher
) -> None:
    """One watch for all resource names; each name is served as soon as it has something to list."""
    # imported here: most nodes have no GPUs, and their agents save the memory
    from nodedevice_agent.plugins.nvml.watch import GpuWatch

    watch = GpuWatch(settings, host_root, state_dir, watcher)
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_restarting("GPUs", watch.run))
        while True:
            source = await watch.wanted.get()
            serving = partial(serve, source, plugin_dir, watcher)
            group.create_task(_keep_restarting(source.resource_name, serving))


async def _keep_serving(
    resource_name: str, make: Callable[[], DeviceSource], plugin_dir: Path, watcher: FileWatcher
) -> None:
    """make: called again after each failure."""
    await _keep_restarting(resource_name, lambda: serve(make(), plugin_dir, watcher))


async def _keep_restarting(resource_name: str, run: Callable[[], Awaitable[None]]) -> None:
    backoff = Backoff(_FIRST_RESTART_SECONDS, _MAX_RESTART_SECONDS)
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await run()
        except Exception as error:
            if loop.time() - began > _HEALTHY_AFTER_SECONDS:
                backoff.reset()
            delay, cause = backoff.next(), innermost(error)
            extra = {"resource_name": resource_name, "error": str(cause), "retry_in_seconds": delay}
            # problems of the node need no traceback; anything else is a bug
            is_known = isinstance(cause, CannotServe | OSError)
            log.error("plugin failed; restarting it", extra=extra, exc_info=None if is_known else cause)
            await asyncio.sleep(delay)


def innermost(error: BaseException) -> BaseException:
    """The first error of a group of tasks, and of groups in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
