"""The agent of a node whose kubelet allocates, in process and without an API server: the test is the cluster.

    async with mirroring(folder) as node:
        await plugin.start(node.plugin_dir); await plugin.register()

What the kubelet's directory holds is whoever's the test says: the oracle's, or a small manager of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.kubelet.backend import KubeletBackend
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.mirror import Mirror

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 30


class Mirroring:
    """`kubelet_dir`: where the test puts a kubelet. `standings`: reasons of the condition Injectable so far, of any resource."""

    def __init__(self, folder: Path, topology: Topology | None = None, grace_seconds: float = 0.0) -> None:
        self.kubelet_dir = folder / "k"
        self.plugin_dir = folder / "p"
        (self.kubelet_dir / "device-plugins").mkdir(parents=True, exist_ok=True)
        self.directory = PluginDirectory.take(self.plugin_dir)
        now = asyncio.get_running_loop().time()
        self.mirror = Mirror(now, checkpoint_file.read(folder), topology=topology)
        self.host = PluginHost(self.mirror, folder, self.directory, self._changed)
        kubelet = KubeletDirectory(self.kubelet_dir, self.plugin_dir)
        self.standings: list[str] = []
        self.backend = KubeletBackend(self.mirror, self.host, kubelet, self._stands, grace_seconds)
        self._happened = asyncio.Event()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self.backend.start(tasks)
                await self.host.start(tasks)
                tasks.create_task(asyncio.Event().wait())
        finally:
            await self.host.drain()

    def cordon(self, resource_name: str, *device_ids: str) -> None:
        """These are the administrator's cordons, all of them."""
        self.host.do(self.mirror.cordoned(resource_name, device_ids, self.host.now()))

    def pods(self, *pods: Pod) -> None:
        """These are the node's pods, as the API has them."""
        self.host.do(self.mirror.pods_synced(pods, self.host.now()))

    def pod_seen(self, pod: Pod) -> None:
        self.host.do(self.mirror.pod_seen(pod, self.host.now()))

    def pod_gone(self, uid: str) -> None:
        self.host.do(self.mirror.pod_gone(uid, self.host.now()))

    def snapshot(self, resource_name: str) -> Snapshot:
        return snapshot(self.mirror, resource_name)

    def held(self, resource_name: str) -> dict[str, tuple[str, ...]]:
        """Device IDs by `uid/container`."""
        return {f"{a.pod_uid}/{a.container}": a.device_ids for a in self.mirror.book.of_resource(resource_name)}

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; looked at whenever a resource changes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self._happened.clear()
                await self._happened.wait()

    async def until_standing(self, resource_name: str, reason: str) -> str:
        """Wait until the condition Injectable has this reason; returns its message."""
        await self.until(lambda: self.injectable(resource_name)[1] == reason)
        return self.injectable(resource_name)[2]

    def injectable(self, resource_name: str) -> tuple[str, str, str]:
        return self.backend.injectable(self.snapshot(resource_name))

    def _stands(self, resource_name: str) -> None:
        self.standings.append(self.injectable(resource_name)[1])
        self._happened.set()

    def _changed(self, resource_name: str) -> None:
        if resource_name in self.mirror.resources:
            self.backend.resource_changed(resource_name)
        self._happened.set()


@asynccontextmanager
async def mirroring(
    folder: Path, topology: Topology | None = None, grace_seconds: float = 0.0
) -> AsyncIterator[Mirroring]:
    """Running until left, and then ended as the agent ends."""
    found = Mirroring(folder, topology, grace_seconds)
    with found.directory:
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


def pod(uid: str, resource_name: str, *counts: int, name: str = "", has_ended: bool = False) -> Pod:
    """A pod named as its uid unless said; containers c0, c1, ... that ask for so many."""
    containers = tuple(Container(f"c{index}", limits={resource_name: count}) for index, count in enumerate(counts))
    return Pod(uid, "default", name or uid, containers, has_ended=has_ended)
