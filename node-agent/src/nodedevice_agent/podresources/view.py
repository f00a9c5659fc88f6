"""The PodResources view of the device manager: each pod's containers with their devices, for monitors on the node.

A read: it changes nothing, and pods that have ended are not in it. One entry per resource, device and NUMA node, never
grouped: a device on two nodes is listed twice, one without topology once. Sidecars and app containers are included, init
containers are not.
Source: kubelet pkg/kubelet/apis/podresources @ 1.37. Intended differences: equal state gives equal order, and a cordoned
device is not allocatable unless a container holds it.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import ContainerKind, Pod
from nodedevice_agent.devicemanager.records.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.devices import Device


class DeviceOnNode(Struct, frozen=True):
    """One device, in the shown form, on one NUMA node; numa_node: None for a device without topology."""

    resource_name: str
    device_id: str
    numa_node: int | None = None


class ContainerDevices(Struct, frozen=True):
    name: str
    kind: ContainerKind
    devices: tuple[DeviceOnNode, ...] = ()


class PodDevices(Struct, frozen=True):
    """containers: sidecars, then app containers, each in the pod's order, including those without devices."""

    namespace: str
    name: str
    containers: tuple[ContainerDevices, ...] = ()


class Seen(Struct, frozen=True):
    """A pod and its devices at that moment. size: the number of devices."""

    pod: Pod
    allocations: tuple[Allocation, ...]

    @property
    def size(self) -> int:
        return sum(len(allocation.device_ids) for allocation in self.allocations)


class SeenResource(Struct, frozen=True):
    """A resource, and its devices that are allocatable at that moment, sorted."""

    name: str
    devices: Mapping[str, Device]
    device_ids: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.device_ids)


def seen(manager: DeviceManager) -> list[Seen]:
    """Every pod of this node that has not ended, by namespace and name."""
    found = sorted(manager.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    return [Seen(pod, tuple(manager.book.of_pod(pod.uid))) for pod in found]


def pods(found: Iterable[Seen]) -> list[PodDevices]:
    """Call it in any thread."""
    return [_view(each) for each in found]


def pod(manager: DeviceManager, namespace: str, name: str) -> Seen | None:
    """One pod; None when this node has no such pod, or it has ended."""
    named = (found for found in manager.pods.values() if (found.namespace, found.name) == (namespace, name))
    return next((Seen(found, tuple(manager.book.of_pod(found.uid))) for found in named), None)


def seen_resources(manager: DeviceManager) -> list[SeenResource]:
    """Every healthy device of a connected plugin, held or not."""
    return [
        SeenResource(name, resource.devices, availability.allocatable(resource))
        for name, resource in sorted(manager.resources.items())
        if resource.is_live
    ]


def allocatable(found: Iterable[SeenResource]) -> list[DeviceOnNode]:
    """Sorted; in any thread."""
    return [
        DeviceOnNode(resource.name, device_id, node)
        for resource in found
        for device_id in resource.device_ids
        for node in resource.devices[device_id].numa_nodes or (None,)
    ]


def _view(found: Seen) -> PodDevices:
    by_container: dict[str, list[Allocation]] = {}
    for allocation in sorted(found.allocations, key=lambda each: each.resource_name):
        by_container.setdefault(allocation.container, []).append(allocation)
    containers = tuple(
        ContainerDevices(container.name, kind, tuple(_devices(by_container.get(container.name, ()))))
        for kind in (ContainerKind.SIDECAR, ContainerKind.APP)
        for container in found.pod.containers
        if container.kind is kind
    )
    return PodDevices(found.pod.namespace, found.pod.name, containers)


def _devices(allocations: Iterable[Allocation]) -> Iterator[DeviceOnNode]:
    for allocation in allocations:
        for node, device_ids in sorted(allocation.ids_by_numa.items()):
            for device_id in device_ids:
                yield DeviceOnNode(allocation.resource_name, device_id, None if node == NO_NUMA_NODE else node)
