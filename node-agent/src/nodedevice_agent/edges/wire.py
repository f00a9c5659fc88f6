"""Between the device plugin protocol's messages and the core's values. No message object leaves the edges.

Source: kubelet deviceplugin v1beta1. Only the string Healthy means healthy.
"""

from collections.abc import Iterable

from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent.core.devices import MAX_NUMA_NODES, Device, DeviceList, accept
from nodedevice_agent.core.resources import PluginOptions

HEALTHY = "Healthy"
# what the CRD can hold; a real machine has a few dozen
_MAX_NUMA_NODE = 2**31 - 1


# what the CRD can hold of a device's details
_MAX_REASON, _MAX_MESSAGE, _MAX_ATTRIBUTES, _MAX_ATTRIBUTE = 128, 1024, 32, 256


def device_list(message: api_pb2.ListAndWatchResponse) -> DeviceList:
    # the same bytes read as the other message: what v1beta1 does not know has stayed in them
    details = DeviceListDetails.FromString(message.SerializeToString())
    devices = map(_device, message.devices, details.devices)
    return accept(devices, _plain(details.message or details.reason, _MAX_MESSAGE))


def _device(device: api_pb2.Device, details: DeviceDetails) -> Device:
    nodes: set[int] = set()
    if device.HasField("topology"):
        nodes = {node.ID for node in device.topology.nodes if 0 <= node.ID <= _MAX_NUMA_NODE}
    return Device(
        device.ID,
        device.health == HEALTHY,
        tuple(sorted(nodes))[:MAX_NUMA_NODES],
        _plain(details.reason, _MAX_REASON),
        _plain(details.message, _MAX_MESSAGE),
        _attributes(details) if details.attributes else (),
    )


def _attributes(details: DeviceDetails) -> tuple[tuple[str, str], ...]:
    named = sorted(
        (_plain(name, _MAX_ATTRIBUTE), _plain(value, _MAX_ATTRIBUTE)) for name, value in details.attributes.items()
    )
    return tuple({name: (name, value) for name, value in named if name}.values())[:_MAX_ATTRIBUTES]


def _plain(text: str, most: int) -> str:
    """Bounded, and in one line that can be printed, whatever the plugin sent."""
    return "".join(c if c.isprintable() else " " for c in text[:most]) if text else ""


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
