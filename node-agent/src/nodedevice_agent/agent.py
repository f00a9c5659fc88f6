"""Composes the agent of one node: the device manager, its plugin host, the publisher, and the delivery to containers.

Optional parts are imported on use: each delivery takes half a MiB.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nodedevice_api.names import DELIVERY_KUBELET, DELIVERY_NRI
from nodedevice_common.tasks import retried

from nodedevice_agent import __version__, metrics
from nodedevice_agent.checkpoint.files import agent_id, restore
from nodedevice_agent.configs.effective import Effective
from nodedevice_agent.configs.watch import ConfigWatch, last_known
from nodedevice_agent.delivery.contract import Delivery
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.allocation.responses_after_boot import after_boot
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resource_name_limit import Displace, share
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.runtime import RuntimeHandler
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper, identity
from nodedevice_agent.kube.pods import PodObserver, PodWatch
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.served_resources import ServedStatus, Source
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.injected_containers import InjectedContainers
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.served import KubeletResources
from nodedevice_agent.lib import memory
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.lib.filesystem import boot_id
from nodedevice_agent.lib.vital import vital
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.node_sources import NodeSources
from nodedevice_agent.offered_twice.watch import OfferedTwice
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_agent.settings import AgentSettings, read_topology

if TYPE_CHECKING:
    from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
    from nodedevice_agent.dra.observation import Observation
    from nodedevice_agent.dra.observer import DriverObserver
    from nodedevice_agent.kubelet.backend import KubeletBackend
    from nodedevice_agent.runtime.backend import NriBackend

_BEAT_SECONDS = 5.0
# the file with names of DRA drivers' pools; defined here because its module is imported only on use
POOLS_FILE_NAME = "dra-pools.json"


class Agent:
    """One node's agent: builds the collaborators, starts their tasks and stops them. run() until cancelled."""

    def __init__(
        self,
        settings: AgentSettings,
        directory: PluginDirectory,
        cluster: KubeClient,
        health: AgentHealth,
        apply_plugins: Callable[[PluginSettings], None],
        built_in: BuiltInSockets,
    ) -> None:
        """apply_plugins: called with the node's plugins after each change. built_in: the served ones. Raises AgentSettingsError."""
        self._settings = settings
        self._health = health
        node_name, state_dir = settings.node_name, Path(settings.state_dir)
        topology = read_topology(settings.topology_policy, settings.topology_scope, settings.numa_nodes)
        checkpoint, note = restored(settings)
        self._manager = device_manager(settings, topology, checkpoint)
        self._publisher = Publisher(cluster, node_name, note)
        sockets, report = (
            checkpoint.sockets if checkpoint is not None else (),
            partial(health.report, "plugin directory"),
        )
        publish = self._publisher.publish
        self._host = PluginHost(self._manager, state_dir, directory, publish, sockets, report, built_in)
        self.is_serving = self._host.is_serving
        observed = KubeletResources(asyncio.get_running_loop().time()) if settings.observe else None
        # static pods that the runtime has not shown are only observed
        pods = self._manager.pods if observed is None else observed.pods
        self._reader = KubeletReader(KubeletDirectory(Path(settings.kubelet_dir)), pods)
        self._observer = self._kubelet_observer(observed, cluster)
        self._drivers = self._drivers_observation(observed)
        self._sources: list[Source] = []
        self._served_status: ServedStatus | None = None
        observers: list[PodObserver] = []
        places, displaced = [self._manager.places], list[Displace]()
        if self._observer is not None:
            observers.append(self._observer)
            places.append(self._observer.served.places)
            displaced.append(self._observer.displace)
            self._served_status = ServedStatus(self._observer.served, self._manager, settings.delivery)
            self._sources.append(self._served_status)
        if self._drivers is not None:
            observers.append(self._drivers.holders)
        pools = self._pools = self._drivers.slices if self._drivers is not None else self._former_pools(observed)
        if pools is not None:
            places.append(pools.served.places)
            displaced.append(pools.displace)
            self._sources.append(pools.served)
        share(places, displaced)
        self._offered_twice = self._comparison()
        self._pods = PodWatch(self._host, self._publisher, health, observers)
        self._lease = LeaseKeeper(
            cluster, settings.leases_namespace, node_name, identity(agent_id(state_dir)), self._host.rejections, health
        )
        self._configs = ConfigWatch(
            cluster,
            node_name,
            settings.plugins,
            settings.allowed_host_paths,
            state_dir,
            partial(self._configured, apply_plugins),
            self._lease.report_configs,
            built_in.node_labels.are,
            built_in.unmatched,
        )
        self._pod_resources = self._pod_resources_server()
        self._watcher = self._plugin_watcher(directory)
        self._nri = self._nri_backend(built_in)
        recorder = RecordOnly(advertises=settings.advertise_without_injection)
        self._delivery: Delivery = self._kubelet_backend(directory) or self._nri or recorder
        built_in.injector.is_kubelet = settings.delivery == DELIVERY_KUBELET
        metrics.INFO.labels(__version__, settings.delivery, settings.delivery).set(1)

    async def run(self) -> None:
        """Raises LeaseHeld; TaskEnded means a bug."""
        await self._lease.acquire()
        try:
            async with asyncio.TaskGroup() as tasks:
                start = tasks.create_task
                start(vital("beat", self._beat))
                self._publisher.start(tasks, self._host, self._delivery, self._sources)
                await self._delivery.start(tasks)
                for resource_name in self._manager.resources:
                    self._publisher.publish(resource_name)
                if self._nri is None:
                    start(vital("nri", self._idle_plugin().run))
                await self._host.start(tasks)
                if self._pod_resources is not None:
                    await self._pod_resources.start()
                if self._watcher is not None:
                    start(retried("plugin registry", self._watcher.run))
                start(retried("pods", self._pods.run))
                if self._reader.has_subscribers:
                    start(retried("kubelet state", self._reader.run))
                if self._observer is not None:
                    start(retried("kubelet observer", self._observer.run))
                if self._pools is not None:
                    start(retried("dra slices", self._pools.run))
                if self._drivers is not None:
                    start(retried("dra claims", self._drivers.claims.run))
                    start(retried("dra holders", self._drivers.holders.run))
                start(retried("offered twice", self._offered_twice.run))
                start(vital("lease", self._lease.run))
                start(retried("configs", self._configs.run))
                start(retried("memory", partial(memory.release, self._publisher.has_parked)))
        finally:
            if self._pod_resources is not None:
                await self._pod_resources.stop()
            await self._host.drain()

    def _configured(self, apply_plugins: Callable[[PluginSettings], None], found: Effective) -> None:
        now, plugins = self._host.now(), [plugin for _, _, plugin in found.plugins.each()]
        awaited = [name for plugin in plugins if plugin.finds_files for name in plugin.names()]
        returning = [name for plugin in plugins for name in plugin.listed_at_once()]
        self._manager.table.ranked(found.ranks, awaited, now)
        self._manager.table.configured(found.names, now, returning)
        self._host.settle()
        if self._nri is not None:
            self._nri.configured(found.plugins)
        apply_plugins(found.plugins)

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            self._health.report("watches", self._publisher.poll_watches())
            self._publisher.park()
            await asyncio.sleep(_BEAT_SECONDS)

    def _pod_resources_server(self) -> PodResourcesServer | None:
        socket = self._settings.pod_resources_socket
        if socket == "":
            return None
        path = Path(self._settings.state_dir, "pod-resources", "kubelet.sock") if socket is None else Path(socket)
        return PodResourcesServer(
            path, self._manager, are_pods_known=lambda: self._publisher.are_pods_known, clock=self._host.now
        )

    def _plugin_watcher(self, directory: PluginDirectory) -> "PluginWatcher | None":
        registry_dir = self._settings.plugins_registry_dir
        if not registry_dir:
            return None
        if Path(os.path.realpath(directory.path)).is_relative_to(os.path.realpath(registry_dir)):
            raise AgentSettingsError(
                f"--plugins-registry-dir {registry_dir} contains --plugin-dir {directory.path}, which has no registration sockets; "
                "use separate directories"
            )
        from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher

        return PluginWatcher(Path(registry_dir), self._host)

    def _nri_backend(self, built_in: BuiltInSockets) -> "NriBackend | None":
        if self._settings.delivery != DELIVERY_NRI:
            return None
        from nodedevice_agent.runtime.backend import NriBackend

        return NriBackend(self._settings, self._host, self._reader, self._publisher.refresh_all, built_in.injector)

    def _kubelet_backend(self, directory: PluginDirectory) -> "KubeletBackend | None":
        """Raises AgentSettingsError."""
        if self._settings.delivery != DELIVERY_KUBELET:
            return None
        from nodedevice_agent.kubelet.backend import KubeletBackend

        reader, grace_seconds = self._reader, self._settings.runtime_grace_seconds
        reader.directory.refuse_as_own(directory.path)
        return KubeletBackend(self._host, reader, self._publisher.refresh, grace_seconds)

    def _kubelet_observer(self, served: KubeletResources | None, cluster: KubeClient) -> Observer | None:
        if served is None:
            return None
        capacity = partial(cluster.node_capacity, self._settings.node_name)
        observer = Observer(self._reader, served, self._publisher.publish_served, capacity)
        self._reader.subscribe(observer)
        return observer

    def _drivers_observation(self, served: KubeletResources | None) -> "Observation | None":
        if served is None or not self._settings.observe_dra:
            return None
        from nodedevice_agent.dra.observation import Observation

        others, publisher = (self._manager.resources, served.resources), self._publisher
        node_name, file = self._settings.node_name, Path(self._settings.state_dir, POOLS_FILE_NAME)
        return Observation(publisher.watches, node_name, self._reader, publisher.publish_served, others, file)

    def _former_pools(self, served: KubeletResources | None) -> "DriverObserver | None":
        """Removes NodeDevices of pools after the observation of drivers was turned off."""
        file, publisher = Path(self._settings.state_dir, POOLS_FILE_NAME), self._publisher
        if not os.path.exists(file):
            return None
        from nodedevice_agent.dra.observation import observer

        others = [self._manager.resources, *([served.resources] if served is not None else [])]
        return observer(publisher.watches, self._settings.node_name, None, publisher.publish_served, others, file)

    def _comparison(self) -> OfferedTwice:
        observer = self._observer
        sources = NodeSources(self._manager, observer, self._served_status, self._drivers, self._host.now)
        host = HostReader(self._settings.plugins.host_root)
        found = OfferedTwice(sources, host, self._publisher.refresh)
        self._publisher.offered_twice = found
        return found

    def _idle_plugin(self) -> NriPlugin:
        """Made for every other delivery as well: the annotation that makes a pod require this NRI plugin does not depend on its
        node.
        """
        by_kubelet = self._settings.delivery == DELIVERY_KUBELET
        grace_seconds = self._settings.runtime_grace_seconds
        handler = InjectedContainers(self._host, grace_seconds) if by_kubelet else RuntimeHandler()
        return NriPlugin(handler, Path(self._settings.nri_socket), self._settings.nri_index)


def restored(settings: AgentSettings) -> tuple[Checkpoint | None, str]:
    """Returns the checkpoint to start from, if any, and why an existing one is not used. After a boot, responses of built-in
    plugins are outdated and left out.
    """
    state_dir = Path(settings.state_dir)
    checkpoint, note = restore(state_dir)
    if checkpoint is not None and checkpoint.boot_id != boot_id():
        plugins = last_known(settings.plugins, settings.allowed_host_paths, state_dir)
        checkpoint = after_boot(checkpoint, plugins.may_serve)
    return checkpoint, note


def device_manager(settings: AgentSettings, topology: Topology, checkpoint: Checkpoint | None) -> DeviceManager:
    """The state from the checkpoint; without one, allocations are recovered from the API."""
    by_kubelet = settings.delivery == DELIVERY_KUBELET
    return DeviceManager(
        asyncio.get_running_loop().time(),
        with_edits(checkpoint) if checkpoint is not None else None,
        is_recovering=checkpoint is None,
        waits_for_cordons=True,
        waits_for_runtime=settings.delivery == DELIVERY_NRI,
        allocate_retry=None if by_kubelet else settings.allocate_retry,
        is_attributed=(lambda name: True) if by_kubelet else None,
        delivery=settings.delivery,
        topology=topology,
        flapping=FlapDampingLimits(
            settings.flapping_changes, settings.flapping_window_seconds, settings.flapping_quiet_seconds
        ),
    )
