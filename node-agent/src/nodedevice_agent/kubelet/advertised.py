"""What the kubelet is shown of a resource where it is the allocator, and which devices it is advised to take.

A device that an administrator took out is unhealthy to the kubelet while nobody holds it, and healthy while somebody does: the
kubelet would else refuse to start that container again. Only a change of a device's own health reaches the pods that hold it.
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
class Offer:
    """devices: sorted by ID, with the health that the kubelet is told. options: None while no plugin is connected."""

    devices: tuple[Device, ...]
    options: PluginOptions | None


def offer(resource: Resource, held: Membership[str]) -> Offer | None:
    """What to show the kubelet now; None while there is nothing to show, or no longer.

    Nothing is shown before the administrator's cordons are known, nor before a plugin has listed its devices: the kubelet would
    give out what is cordoned, or take the empty list for the truth. A plugin that is away leaves its devices unhealthy until its
    grace period has ended.
    """
    # devices are forgotten when the grace period ends
    was_listed = resource.is_live or bool(resource.devices)
    if not resource.are_cordons_synced or not was_listed:
        return None
    devices = tuple(
        Device(device_id, _is_shown_healthy(resource, device_id, held), resource.devices[device_id].numa_nodes)
        for device_id in sorted(resource.devices)
    )
    return Offer(devices, resource.options if resource.is_live else None)


def advice(
    resource: Resource, topology: Topology, available: Iterable[str], must_include: Iterable[str], size: int
) -> Selection:
    """Which `size` of the devices that the kubelet could take are best; fewer where the others should not be taken.

    available, must_include: as the kubelet asks; it fills up by itself what is missing. A plugin may be asked about the choice.
    """
    settled = tuple(sorted(set(must_include)))
    usable = tuple(i for i in sorted(set(available).difference(settled)) if resource.is_usable(i))
    affinity = None
    if topology.is_aligning:
        could = hints(resource.devices, size, usable, settled, topology.numa_nodes)
        affinity = merge(topology, [could]).affinity
    return select(resource.devices, size, settled, usable, affinity)


def _is_shown_healthy(resource: Resource, device_id: str, held: Membership[str]) -> bool:
    return resource.is_healthy(device_id) and (device_id in held or not resource.is_cordoned(device_id))
