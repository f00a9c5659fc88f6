"""A node whose sources are compared: a kubelet's plugin, ours, and a driver's pool."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.kubelet.served import KubeletDevices
from nodedevice_agent.offered_twice.files import Host
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.offers import PoolOffer
from nodedevice_agent.offered_twice.watch import OfferedTwice
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceTaint
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.settled import observing
from tests.fakes.virtual_time import later
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod

UUID, OTHER = "GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0", "GPU-ffffffff-e770-3ea8-8ac3-8a1d419763e0"
OURS, DRIVER = "ours.example.com/gpu", "gpu.vendor.example"
POOL = f"{DRIVER}/devices"


class Disk(HostReader):
    """Without device files. Takes so many seconds of the loop for each read. read_at: when they began. hangs: whether the last has
    not ended.
    """

    def __init__(self, seconds: float = 0.0, *, hangs: bool = False) -> None:
        super().__init__()
        self.seconds = seconds
        self.hangs = hangs
        self.read_at: list[float] = []

    @property
    def is_reading(self) -> bool:
        return self.hangs

    async def read(self, paths: Collection[str], cdi: Collection[str]) -> Host:
        self.read_at.append(asyncio.get_running_loop().time())
        await later(self.seconds)
        return Host()


class Node:
    """Each source offers nothing unless a test says so. host: what is read of its files."""

    def __init__(self, host: HostReader) -> None:
        self.ours = Scenario()
        self.kubelet = observing()
        self.offered: dict[str, PoolOffer] = {}
        self.are_known = True
        self.changed: list[str] = []
        self.comparisons = 0
        self.twice = OfferedTwice(cast(Any, self), host, self.changed.append)

    def managed(self) -> Iterator[tuple[DeviceManager, Resource, bool]]:
        self.comparisons += 1
        for resource in self.ours.manager.resources.values():
            yield self.ours.manager, resource, False
        for resource in self.kubelet.resources.values():
            yield self.kubelet.manager, resource, True

    def pools(self) -> Iterator[PoolOffer]:
        yield from self.offered.values()

    def kubelets(
        self, *ids: str, held: Mapping[str, str] | None = None, files: tuple[str, ...] = (), cdi: str = ""
    ) -> None:
        """held: pod by device."""
        specs = [api_pb2.DeviceSpec(host_path=path, container_path=path, permissions="rw") for path in files]
        response = api_pb2.ContainerAllocateResponse(devices=specs)
        if cdi:
            response.cdi_devices.add(name=cdi)
        by_pod: dict[str, list[str]] = {}
        for device_id, name in (held or {}).items():
            by_pod.setdefault(name, []).append(device_id)
        self.kubelet.pods_synced([pod(name, gpu=1) for name in by_pod], 0.0)
        entries = tuple(
            Allocation(name, "main", GPU, {-1: tuple(each)}, response.SerializeToString())
            for name, each in by_pod.items()
        )
        rows = tuple(PodResourcesRow("default", name, "main", GPU, tuple(each)) for name, each in by_pod.items())
        self.kubelet.read(KubeletDevices({GPU: dict.fromkeys(ids, ())}), KubeletState(entries, rows), 0.0)
        while (listing := self.kubelet.next_listing()) is not None:
            self.kubelet.listing_made(listing, listing.made(), 0.0)
        self.twice.is_changed.set()

    def drivers(
        self,
        devices: Mapping[str, Mapping[str, str]],
        held: frozenset[str] = frozenset(),
        cdi: Mapping[str, tuple[str, ...]] | None = None,
        taints: tuple[DeviceTaint, ...] = (),
    ) -> None:
        of_slice = {name: SimpleNamespace(attributes=each, taints=taints) for name, each in devices.items()}
        pool: Any = SimpleNamespace(driver=DRIVER, devices=of_slice)
        self.offered[POOL] = PoolOffer(POOL, pool, held, cdi or {})
        self.twice.is_changed.set()

    def of(self, name: str) -> str:
        found = self.twice.conditions.get(name)
        if found is None:
            return ""
        assert found[:2] == ("True", Reason.OFFERED_TWICE)
        return found[2]


def gauges() -> dict[str, float]:
    return {
        sample.labels["resource_name"]: sample.value
        for metric in metrics.OFFERED_TWICE.collect()
        for sample in metric.samples
    }
