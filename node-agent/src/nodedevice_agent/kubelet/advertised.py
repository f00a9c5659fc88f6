"""What is advertised to the kubelet of a resource where the kubelet allocates, and which devices it should prefer.

A cordoned device is advertised as unhealthy while it is free, and as healthy while a container has it: otherwise the kubelet would
refuse to restart that container. Only a change of a device's own health reaches the pods that have it.
Source: kubelet deviceplugin v1beta1, ListAndWatch and GetPreferredAllocation; devicesToAllocate @ 1.37.
"""

from collections.abc import Container as Membership
from collections.abc import Iterable
from dataclasses import dataclass

from nodedevice_agent.devicemanager.allocation.selection import Selection, select
from nodedevice_agent.devicemanager.allocation.topology import Topology, hints, merge
from nodedevice_agent.devicemanager.devices import Device
from nodedevice_agent.devicemanager.resource import PluginOptions, Resource


@dataclass(frozen=True, slots=True)
class Advertised:
    """devices: sorted by ID, with the health that is advertised. options: None while no plugin is connected."""

    devices: tuple[Device, ...]
    options: PluginOptions | None


def advertised(resource: Resource, allocated: Membership[str]) -> Advertised | None:
    """What to advertise now; None for nothing.

    Nothing is advertised before the administrator's cordons are known, nor before a plugin has listed its devices: the kubelet
    would allocate cordoned devices, or take the empty list as final. The devices of a disconnected plugin are unhealthy until
    its grace period has ended.
    """
    # devices are forgotten when the grace period ends
    was_listed = resource.is_live or bool(resource.devices)
    if not resource.are_cordons_synced or not was_listed:
        return None
    devices = tuple(
        Device(device_id, _is_healthy(resource, device_id, allocated), resource.devices[device_id].numa_nodes)
        for device_id in sorted(resource.devices)
    )
    return Advertised(devices, resource.options if resource.is_live else None)


def select_preferred(
    resource: Resource, topology: Topology, available: Iterable[str], must_include: Iterable[str], size: int
) -> Selection:
    """Which `size` of the available devices to prefer; fewer where the others should not be allocated.

    available, must_include: of the kubelet's request; it adds missing devices by itself. The device plugin may reorder the pool.
    """
    settled = tuple(sorted(set(must_include)))
    usable = tuple(i for i in sorted(set(available).difference(settled)) if resource.is_usable(i))
    affinity = None
    if topology.is_aligning:
        possible = hints(resource.devices, size, usable, settled, topology.numa_nodes)
        affinity = merge(topology, [possible]).affinity
    return select(resource.devices, size, settled, usable, affinity)


def _is_healthy(resource: Resource, device_id: str, allocated: Membership[str]) -> bool:
    return resource.is_healthy(device_id) and (device_id in allocated or not resource.is_cordoned(device_id))
