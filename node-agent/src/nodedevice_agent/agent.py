"""The agent: brings what the API server tells to the device manager, and what the manager decides to the API server.

The plugins' half of it is edges/plugin_host.
"""

import asyncio
import logging
import platform
from functools import partial
from pathlib import Path
from typing import Any

from nodedevice_api.names import RUNTIME_KUBELET, RUNTIME_NRI

from nodedevice_agent import __version__, metrics
from nodedevice_agent.checkpoint.files import restore
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.flap_damping import FlappingLimits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resource import EndpointState
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.devicemanager.state import PluginSocket
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.errors import SettingsError
from nodedevice_agent.kube.client import Cluster
from nodedevice_agent.kube.lease import keep_lease
from nodedevice_agent.kube.nodedevice import NodeDevice
from nodedevice_agent.kube.pods import watch_pods
from nodedevice_agent.kube.rebuild import recover_checkpoint
from nodedevice_agent.kube.status import node_device_status
from nodedevice_agent.kubelet.backend import KubeletBackend
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.lib.probes import Health
from nodedevice_agent.nri.plugin import NriPlugin
from nodedevice_agent.numa import read_topology
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.injector import Bystander
from nodedevice_agent.settings import Settings

log = logging.getLogger(__name__)

_BEAT_SECONDS = 5.0


class Agent:
    """One node's agent. run() until cancelled."""

    def __init__(
        self, settings: Settings, state_dir: Path, directory: PluginDirectory, cluster: Cluster, health: Health
    ) -> None:
        self._settings = settings
        self._node_name = settings.node_name
        self._state_dir = state_dir
        self._cluster = cluster
        self._health = health
        self._notes = ""
        self._were_connected: tuple[PluginSocket, ...] = ()
        self._manager = self._restored_manager()
        self._host = PluginHost(
            self._manager, state_dir, directory, self._publish, self._were_connected, self._plugins_said
        )
        self.is_serving = self._host.is_serving
        self._pod_resources = self._pod_resources_server()
        self._watcher = self._plugin_watcher(directory)
        self._kubelet = self._kubelet_backend(directory)
        self._nri = self._nri_backend()
        self._objects: dict[str, NodeDevice] = {}
        metrics.INFO.labels(__version__, settings.runtime).set(1)
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                start = self._tasks.create_task
                start(self._beat())
                if self._kubelet is not None:
                    await self._kubelet.start(self._tasks)
                for resource_name in self._manager.resources:
                    self._publish(resource_name)
                # before plugins are back: what is in the checkpoint can be given at once
                start(self._runtime_plugin())
                await self._host.start(self._tasks)
                if self._pod_resources is not None:
                    await self._pod_resources.start()
                if self._watcher is not None:
                    start(self._watcher.run())
                start(self._follow_cluster())
                start(self._keep_lease())
        finally:
            if self._pod_resources is not None:
                await self._pod_resources.stop()
            await self._host.drain()

    def _plugins_said(self, problem: str) -> None:
        if problem:
            self._health.is_missing("plugin directory", problem)
        else:
            self._health.is_there("plugin directory")

    # -- the cluster ------------------------------------------------------------------------------------------------

    async def _follow_cluster(self) -> None:
        if self._manager.is_recovering:
            known = await recover_checkpoint(self._cluster, self._node_name)
            if known.registered:
                log.warning("allocations recovered from the API", extra={"allocations": len(known.allocations)})
            self._host.do(self._manager.recovered(known, self._host.now()))
        manager = self._manager
        await watch_pods(
            self._cluster,
            self._node_name,
            synced=lambda pods: self._synced(manager.pods_synced(pods, self._host.now())),
            seen=lambda pod: self._host.do(manager.pod_seen(pod, self._host.now())),
            gone=lambda uid: self._host.do(manager.pod_gone(uid, self._host.now())),
        )

    def _synced(self, effects: list[Effect]) -> None:
        self._health.is_there("pods")
        self._host.do(effects)
        self._touch_all()

    async def _keep_lease(self) -> None:
        namespace, refusals = self._settings.leases_namespace, self._host.refusals
        await keep_lease(self._cluster, namespace, self._node_name, platform.node(), refusals, self._lease_said)

    def _lease_said(self, is_renewed: bool) -> None:
        if is_renewed:
            self._health.is_there("api server")
        else:
            self._health.is_missing("api server", "the lease cannot be renewed")

    # -- what is published -------------------------------------------------------------------------------------------------

    def _publish(self, resource_name: str) -> None:
        found = self._objects.get(resource_name)
        if found is None:
            found = self._objects[resource_name] = NodeDevice(
                self._cluster,
                self._node_name,
                resource_name,
                desired=lambda standing, wall_time: self._status(resource_name, standing, wall_time),
                cordoned=lambda ids: self._host.do(self._manager.cordoned(resource_name, ids, self._host.now())),
                saved=self._host.saved,
            )
            self._tasks.create_task(found.run())
        found.touch()
        if self._kubelet is not None:
            self._kubelet.touched(resource_name)

    def _status(self, resource_name: str, standing: dict[str, Any], wall_time: str) -> dict[str, Any] | None:
        nri, kubelet = self._nri, self._kubelet
        is_settled = nri is None or nri.is_settled
        if is_settling(self._manager, resource_name) or not self._health.is_ready("pods") or not is_settled:
            return None
        now = snapshot(self._manager, resource_name) if nri is None else nri.snapshot(resource_name)
        _measure(now)
        injectable = nri.injectable(now) if nri is not None else None
        return node_device_status(
            now,
            standing,
            wall_time=wall_time,
            version=__version__,
            runtime=self._settings.runtime,
            notes=self._notes or (kubelet.notes if kubelet is not None else ""),
            injectable=kubelet.injectable(resource_name) if kubelet is not None else injectable,
        )

    def _touch_all(self) -> None:
        for found in self._objects.values():
            found.touch()

    def _touch(self, resource_name: str) -> None:
        """What is said of this resource may have changed, and nothing of the resource itself."""
        found = self._objects.get(resource_name)
        if found is not None:
            found.touch()

    # -- start ----------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def _pod_resources_server(self) -> PodResourcesServer | None:
        said = self._settings.pod_resources_socket
        path = self._state_dir / "pod-resources" / "kubelet.sock" if said is None else Path(said)
        if said == "":
            return None
        are_known = partial(self._health.is_ready, "pods")
        return PodResourcesServer(path, self._manager, are_pods_known=are_known, clock=self._host.now)

    def _plugin_watcher(self, directory: PluginDirectory) -> PluginWatcher | None:
        registry_dir = self._settings.plugins_registry_dir
        if not registry_dir:
            return None
        host = self._host
        if directory.path.resolve().is_relative_to(Path(registry_dir).resolve()):
            raise SettingsError(
                f"--plugins-registry-dir {registry_dir} contains --plugin-dir {directory.path}: its sockets announce nothing; "
                "give the registry a directory of its own"
            )
        return PluginWatcher(Path(registry_dir), directory.path, host.connect, host.disconnect, host.refusals)

    def _kubelet_backend(self, directory: PluginDirectory) -> KubeletBackend | None:
        """Raises SettingsError."""
        if not isinstance(self._manager, Mirror):
            return None
        kubelet = KubeletDirectory(Path(self._settings.kubelet_dir), directory.path)
        grace_seconds = self._settings.runtime_grace_seconds
        return KubeletBackend(self._manager, self._host, kubelet, self._touch, grace_seconds)

    def _nri_backend(self) -> NriBackend | None:
        settings = self._settings
        if settings.runtime != RUNTIME_NRI:
            return None
        return NriBackend(
            self._host,
            Path(settings.nri_socket),
            settings.nri_index,
            Path(settings.kubelet_dir),
            settings.runtime_grace_seconds,
            self._touch_all,
        )

    async def _runtime_plugin(self) -> None:
        """With every runtime: a pod that is held until this plugin is there may come to any node."""
        if self._nri is not None:
            await self._nri.run()
        else:
            await NriPlugin(Bystander(), Path(self._settings.nri_socket), self._settings.nri_index).run()

    def _restored_manager(self) -> DeviceManager:
        """From the checkpoint; without a valid one, allocations are recovered from the API.

        Raises SettingsError for NUMA nodes that cannot be aligned.
        """
        now = asyncio.get_running_loop().time()
        settings = self._settings
        topology = read_topology(settings.topology_policy, settings.topology_scope, settings.numa_nodes)
        flapping = FlappingLimits(
            settings.flapping_changes, settings.flapping_window_seconds, settings.flapping_quiet_seconds
        )
        mirrors = settings.runtime == RUNTIME_KUBELET
        waits_for_runtime = settings.runtime == RUNTIME_NRI
        kind = (
            Mirror if mirrors else partial(DeviceManager, waits_for_cordons=True, waits_for_runtime=waits_for_runtime)
        )
        new = partial(kind, now, topology=topology, flapping=flapping)
        restored = restore(self._state_dir)
        self._notes = restored.note
        if restored.checkpoint is None:
            return new(is_recovering=True)
        self._were_connected = restored.checkpoint.sockets
        return new(with_edits(restored.checkpoint))


def _measure(now: Snapshot) -> None:
    for state in ("total", "healthy", "cordoned", "allocated", "releasing", "reserved", "available"):
        metrics.RESOURCE_DEVICES.labels(now.resource_name, state).set(getattr(now, state))
    metrics.PODS_WAITING.labels(now.resource_name).set(len(now.waiting))
    metrics.ENDPOINT_RUNNING.labels(now.resource_name).set(now.state is EndpointState.RUNNING)
    metrics.ALLOCATIONS.say(now)
