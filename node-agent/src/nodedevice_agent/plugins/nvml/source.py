"""The GPUs of one resource name as a DeviceSource; the watch publishes its list."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from nodedevice_agent.lib.deviceplugin_server.server import DeviceList
from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, UnknownDevices
from nodedevice_agent.plugins.nvml.devices import CONTROL_NODES, allocation, device_scores, devices_of, gpu_uuid
from nodedevice_agent.plugins.nvml.fleet import Fleet
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.preference import preferred
from nodedevice_agent.plugins.settings import NvmlSettings


class NvmlSource:
    """is_wanted: set once there is something to serve; a node without GPUs does not register the resource."""

    prefers = True

    def __init__(self, resource_name: str, settings: NvmlSettings, host_root: str, fleet: Fleet) -> None:
        self.resource_name = resource_name
        self.devices = DeviceList()
        self.is_wanted = asyncio.Event()
        self._settings = settings
        self._host_root = host_root.rstrip("/")
        self._fleet = fleet

    def refresh(self) -> None:
        """The list is what the reader reported last."""

    async def run(self) -> None:
        """The watch publishes."""
        await asyncio.Event().wait()

    def publish(self) -> bool:
        """Publish the list for the current fleet. Returns whether it changed."""
        own = [gpu for gpu in self._fleet.gpus.values() if self._is_own(gpu)]
        listed = [device for gpu in own for device in devices_of(gpu, self._fleet.trouble_of(gpu.uuid))]
        overall = self._fleet.trouble
        trouble = (overall.reason, overall.message) if overall is not None else ("", "")
        return self.devices.publish(sorted(listed, key=lambda device: device.id), trouble)

    def allocate(self, device_ids: Iterable[str]) -> ContainerAllocation:
        """Raises AllocationRefused. Unhealthy GPUs are allocated too: the device manager decides which ones to request."""
        wanted = sorted(set(device_ids))
        listed = {device.id for device in self.devices.latest}
        unknown = tuple(device_id for device_id in wanted if device_id not in listed)
        if unknown:
            raise UnknownDevices(self.resource_name, unknown)
        gpus = {gpu_uuid(device_id): self._fleet.gpus[gpu_uuid(device_id)] for device_id in wanted}
        controls = [path for path in CONTROL_NODES if Path(self._host_root + path).exists()]
        settings = self._settings
        return allocation(self.resource_name, gpus.values(), settings.hand_over, settings.cdi_kind, controls)

    def preferred(self, available: Iterable[str], must_include: Iterable[str], size: int) -> tuple[str, ...]:
        """Raises AllocationRefused."""
        numa_nodes = {device.id: device.numa_nodes for device in self.devices.latest}
        wanted = tuple(must_include)
        unknown = tuple(sorted(set(wanted) - set(numa_nodes)))
        if unknown:
            raise UnknownDevices(self.resource_name, unknown)
        # the caller's list may be older than ours: ignore devices that were removed meanwhile
        free = set(available) & set(numa_nodes)
        return preferred(self.resource_name, device_scores(self._fleet.scores), numa_nodes, free, wanted, size)

    def _is_own(self, gpu: Gpu) -> bool:
        return self._settings.resource_of(gpu.model) == self.resource_name
