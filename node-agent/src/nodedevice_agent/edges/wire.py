"""Between the device plugin protocol's messages and the core's values. No message object leaves the edges.

Source: kubelet deviceplugin v1beta1. Only the string Healthy means healthy.
"""

from collections.abc import Iterable

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent.core.devices import MAX_NUMA_NODES, Device, DeviceList, accept
from nodedevice_agent.core.resources import PluginOptions

HEALTHY = "Healthy"
# what the CRD can hold; a real machine has a few dozen
_MAX_NUMA_NODE = 2**31 - 1


def device_list(message: api_pb2.ListAndWatchResponse) -> DeviceList:
    return accept(_device(device) for device in message.devices)


def _device(device: api_pb2.Device) -> Device:
    if not device.HasField("topology"):
        return Device(device.ID, device.health == HEALTHY)
    nodes = {node.ID for node in device.topology.nodes if 0 <= node.ID <= _MAX_NUMA_NODE}
    return Device(device.ID, device.health == HEALTHY, tuple(sorted(nodes))[:MAX_NUMA_NODES])


def options(message: api_pb2.DevicePluginOptions) -> PluginOptions:
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


def allocate_request(device_ids: Iterable[str]) -> api_pb2.AllocateRequest:
    return api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=device_ids)])


def preferred_request(
    available: Iterable[str], must_include: Iterable[str], size: int
) -> api_pb2.PreferredAllocationRequest:
    asked = api_pb2.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
    )
    return api_pb2.PreferredAllocationRequest(container_requests=[asked])
