"""The agent's device manager with its real edges towards plugins, in process and without an API server: the test is the cluster.

    async with hosted(folder) as manager:
        await plugin.register(); await manager.until(lambda: manager.available("example.com/fake") == 2)

Everything a restart reads is in the folder: enter it again and it is the agent that starts anew.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 30


class HostedManager:
    """`published`: the snapshots that the API would have been told, in order; none of a resource that is settling."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.plugin_dir = folder / "plugins"
        self.directory = PluginDirectory.take(self.plugin_dir)
        checkpoint = checkpoint_file.read(folder)
        self.manager = DeviceManager(
            asyncio.get_running_loop().time(), checkpoint and with_edits(checkpoint), **options
        )
        sockets = checkpoint.sockets if checkpoint else ()
        self.published: list[Snapshot] = []
        self._happened = asyncio.Event()
        self.host = PluginHost(self.manager, folder, self.directory, self._changed, sockets)

    def available(self, resource_name: str) -> int:
        """How many devices could be given out; -1 for a resource that is not known."""
        known = resource_name in self.manager.resources
        return snapshot(self.manager, resource_name).available if known else -1

    def pods(self, *pods: Pod) -> None:
        """These are the node's pods."""
        self.host.do(self.manager.pods_synced(pods, self.host.now()))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; looked at whenever a resource changes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self._happened.clear()
                await self._happened.wait()

    def _changed(self, resource_name: str) -> None:
        if not is_settling(self.manager, resource_name):
            self.published.append(snapshot(self.manager, resource_name))
        self._happened.set()


@asynccontextmanager
async def hosted(folder: Path, pods: Iterable[Pod] = (), **options: Any) -> AsyncIterator[HostedManager]:
    """Running until left, and then ended as the agent ends: in order, with everything written. options: of the manager."""
    found = HostedManager(folder, **options)
    with found.directory:
        running = asyncio.create_task(_run(found))
        serving = asyncio.create_task(found.host.is_serving.wait())
        try:
            await asyncio.wait([running, serving], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            found.pods(*pods)
            yield found
        finally:
            serving.cancel()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def _run(found: HostedManager) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            await found.host.start(tasks)
            tasks.create_task(asyncio.Event().wait())
    finally:
        await found.host.drain()
