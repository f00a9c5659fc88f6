"""The sources of devices on this node: the agent's device manager, the kubelet's, and DRA drivers. Reads only."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import is_settling
from nodedevice_agent.kube.served_resources import Source
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.offered_twice.offers import PoolOffer

if TYPE_CHECKING:
    from nodedevice_agent.dra.observation import Observation


class NodeSources:
    """kubelets: the kubelet's resources. It decides whether a name belongs to the kubelet or to the agent."""

    def __init__(
        self,
        manager: DeviceManager,
        kubelet: Observer | None,
        kubelets: Source | None,
        drivers: "Observation | None",
        clock: Callable[[], float],
    ) -> None:
        self._manager = manager
        self._kubelet, self._kubelets = kubelet, kubelets
        self._drivers = drivers
        self._now = clock

    @property
    def are_known(self) -> bool:
        """Whether each source has listed its devices, or never will."""
        if any(is_settling(self._manager, name) for name in self._manager.resources):
            return False
        if self._kubelet is not None and not self._kubelet.is_known:
            return False
        return self._drivers is None or (self._drivers.served.is_synced and self._drivers.holders.is_known)

    def managed(self) -> Iterator[tuple[DeviceManager, Resource, bool]]:
        """Each resource that has a NodeDevice, and whether the kubelet serves it."""
        for resource in self._manager.resources.values():
            if self._kubelets is None or not self._kubelets.has(resource.name):
                yield self._manager, resource, False
        if self._kubelet is not None and self._kubelets is not None:
            for resource in self._kubelet.served.resources.values():
                if self._kubelets.has(resource.name):
                    yield self._kubelet.served.manager, resource, True

    def pools(self) -> Iterator[PoolOffer]:
        if self._drivers is None:
            return
        served, holders = self._drivers.served, self._drivers.holders
        for name, resource in served.resources.items():
            found = served.offered(name, self._now()) if served.has(name) else None
            if found is not None and found.pool is not None and found.state is EndpointState.RUNNING:
                yield PoolOffer(name, found.pool, resource.use.holders.keys(), holders.of(found.key).cdi_ids)
