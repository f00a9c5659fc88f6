"""The agent's device manager with its real edges towards plugins, in process and without an API server: the test is the cluster.

    async with hosted(folder) as manager:
        await manager.register(plugin)

    async with mirroring(folder) as node:                   of a node whose kubelet allocates
        await node.register(plugin)

Everything a restart reads is in the folder: enter it again and it is the agent that restarts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.checkpoint import PluginSocket
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.kubelet.backend import KubeletBackend
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings

from tests.fakes.plugin import FakePlugin
from tests.fakes.settled import attributed

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0


class Hosted:
    """A device manager behind the host of its plugins."""

    def __init__(
        self, folder: Path, plugin_dir: Path, manager: DeviceManager, sockets: Iterable[PluginSocket] = ()
    ) -> None:
        self.folder, self.plugin_dir, self.manager = folder, plugin_dir, manager
        self.directory = PluginDirectory.take(plugin_dir)
        # the plugins of this process, as the agent has its own
        self.runner = PluginRunner(plugin_dir, folder)
        self.host = PluginHost(
            manager, folder, self.directory, self.resource_changed, sockets, built_in=self.runner.sockets
        )
        self.happened = asyncio.Event()

    def resource_changed(self, resource_name: str) -> None:
        self.happened.set()

    def pods(self, *pods: Pod) -> None:
        """These are the node's pods, as the API has them."""
        self.manager.pod_events.synced(pods, self.host.now())
        self.host.settle()

    def pod_seen(self, pod: Pod) -> None:
        self.manager.pod_events.seen(pod, self.host.now())
        self.host.settle()

    def pod_gone(self, uid: str) -> None:
        self.manager.pod_events.gone(uid, self.host.now())
        self.host.settle()

    def time_passes(self, seconds: float) -> None:
        """What is due so much later happens now."""
        clock, later = self.host.now, self.host.now() + seconds
        self.host.now = lambda: later
        try:
            self.manager.tick(later)
            self.host.settle()
        finally:
            self.host.now = clock

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; checked whenever a resource changes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self.happened.clear()
                await self.happened.wait()

    def configure(self, settings: PluginSettings) -> None:
        """These are its own plugins from now on."""
        self.runner.apply(settings)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        await self.host.start(tasks)
        tasks.create_task(self.runner.run())

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self.start(tasks)
                tasks.create_task(asyncio.Event().wait())
        finally:
            await self.host.drain()


class HostedManager(Hosted):
    """`published`: the snapshots that the API would have received, in order; none of a resource that is settling."""

    def __init__(self, folder: Path, **options: Any) -> None:
        checkpoint = checkpoint_file.read(folder)
        manager = DeviceManager(asyncio.get_running_loop().time(), checkpoint and with_edits(checkpoint), **options)
        self.published: list[Snapshot] = []
        super().__init__(folder, folder / "plugins", manager, checkpoint.sockets if checkpoint else ())

    async def register(self, plugin: FakePlugin) -> None:
        """Returns once the manager has the plugin's list."""
        await plugin.join(self.plugin_dir)
        resources = self.manager.resources
        await self.until(lambda: plugin.resource_name in resources and resources[plugin.resource_name].is_live)

    def available(self, resource_name: str) -> int:
        """How many devices could be given out; -1 for a resource that is not known."""
        known = resource_name in self.manager.resources
        return snapshot(self.manager, resource_name).available if known else -1

    def resource_changed(self, resource_name: str) -> None:
        if not is_settling(self.manager, resource_name):
            self.published.append(snapshot(self.manager, resource_name))
        super().resource_changed(resource_name)


class Mirroring(Hosted):
    """`kubelet_dir`: where the test puts a kubelet. `standings`: reasons of the condition Injectable so far, of any resource."""

    def __init__(self, folder: Path, topology: Topology | None = None, grace_seconds: float = 0.0) -> None:
        self.kubelet_dir = folder / "k"
        (self.kubelet_dir / "device-plugins").mkdir(parents=True, exist_ok=True)
        self.mirror = attributed(asyncio.get_running_loop().time(), checkpoint_file.read(folder), topology=topology)
        self.standings: list[str] = []
        super().__init__(folder, folder / "p", self.mirror)
        self.reader = KubeletReader(KubeletDirectory(self.kubelet_dir), self.mirror.pods)
        self.backend = KubeletBackend(self.host, self.reader, self._stands, grace_seconds)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        await self.backend.start(tasks)
        tasks.create_task(self.reader.run())
        await super().start(tasks)

    async def register(self, plugin: FakePlugin) -> None:
        """With the agent; none of its devices is cordoned."""
        await plugin.join(self.plugin_dir)
        await self.until(lambda: plugin.resource_name in self.mirror.resources)
        self.cordon(plugin.resource_name)

    def cordon(self, resource_name: str, *device_ids: str) -> None:
        """These are the administrator's cordons, all of them."""
        self.mirror.table.cordoned(resource_name, "object", dict.fromkeys(device_ids, Cordon()))
        self.host.settle()

    def snapshot(self, resource_name: str) -> Snapshot:
        return snapshot(self.mirror, resource_name)

    def held(self, resource_name: str) -> dict[str, tuple[str, ...]]:
        """Device IDs by `uid/container`."""
        return {f"{a.pod_uid}/{a.container}": a.device_ids for a in self.mirror.book.of_resource(resource_name)}

    async def until_standing(self, resource_name: str, reason: str) -> str:
        """Wait until the condition Injectable has this reason; returns its message."""
        await self.until(lambda: self.injectable(resource_name)[1] == reason)
        return self.injectable(resource_name)[2]

    def injectable(self, resource_name: str) -> tuple[str, str, str]:
        return self.backend.injectable(self.snapshot(resource_name))

    def resource_changed(self, resource_name: str) -> None:
        if resource_name in self.mirror.resources:
            self.backend.resource_changed(resource_name)
        super().resource_changed(resource_name)

    def _stands(self, resource_name: str) -> None:
        self.standings.append(self.injectable(resource_name)[1])
        self.happened.set()


_Hosted = TypeVar("_Hosted", bound=Hosted)


@asynccontextmanager
async def running(found: _Hosted) -> AsyncIterator[_Hosted]:
    """Serving until left, and then ended as the agent ends: in order, with everything written."""
    with closing(found.directory):
        running = asyncio.create_task(found.run())
        serving = asyncio.create_task(found.host.is_serving.wait())
        try:
            await asyncio.wait([running, serving], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            yield found
        finally:
            serving.cancel()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@asynccontextmanager
async def hosted(folder: Path, pods: Iterable[Pod] = (), **options: Any) -> AsyncIterator[HostedManager]:
    """options: of the manager."""
    async with running(HostedManager(folder, **options)) as found:
        found.pods(*pods)
        yield found


@asynccontextmanager
async def mirroring(
    folder: Path, topology: Topology | None = None, grace_seconds: float = 0.0
) -> AsyncIterator[Mirroring]:
    async with running(Mirroring(folder, topology, grace_seconds)) as found:
        yield found


def pod(uid: str, resource_name: str, *counts: int, name: str = "", has_ended: bool = False) -> Pod:
    """A pod named as its uid unless given; containers c0, c1, ... that ask for so many."""
    containers = tuple(Container(f"c{index}", limits={resource_name: count}) for index, count in enumerate(counts))
    return Pod(uid, "default", name or uid, containers, has_ended=has_ended)
