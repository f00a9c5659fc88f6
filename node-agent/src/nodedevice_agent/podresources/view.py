"""The PodResources view of the device manager: each pod's containers with their devices, for monitors on the node.

One entry per resource, device and NUMA node: a device on two nodes is listed twice, one without topology once.
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


class Seen(Struct, frozen=True):
    """A pod and its devices at that moment. size: the number of devices."""

    pod: Pod
    allocations: tuple[Allocation, ...]

    @property
    def size(self) -> int:
        return sum(len(allocation.device_ids) for allocation in self.allocations)

    def containers(self) -> list[ContainerDevices]:
        """Sidecars, then app containers, each in the pod's order, including those without devices. Call it in any thread."""
        by_container: dict[str, list[Allocation]] = {}
        for allocation in sorted(self.allocations, key=lambda allocation: allocation.resource_name):
            by_container.setdefault(allocation.container, []).append(allocation)
        return [
            ContainerDevices(container.name, kind, tuple(_devices(by_container.get(container.name, ()))))
            for kind in (ContainerKind.SIDECAR, ContainerKind.APP)
            for container in self.pod.containers
            if container.kind is kind
        ]


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
    pods = sorted(manager.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    return [Seen(pod, tuple(manager.book.of_pod(pod.uid))) for pod in pods]


def pod(manager: DeviceManager, namespace: str, name: str) -> Seen | None:
    """One pod; None when this node has no such pod, or it has ended."""
    named = (found for found in manager.pods.values() if (found.namespace, found.name) == (namespace, name))
    return next((Seen(found, tuple(manager.book.of_pod(found.uid))) for found in named), None)


def seen_resources(manager: DeviceManager) -> list[SeenResource]:
    """Every healthy device of a connected plugin, held or not."""
    return [
        SeenResource(name, resource.devices, availability.allocatable(resource))
        for name, resource in sorted(manager.resources.items())
    ]


def allocatable(resources: Iterable[SeenResource]) -> list[DeviceOnNode]:
    """Sorted; in any thread."""
    return [
        DeviceOnNode(resource.name, device_id, node)
        for resource in resources
        for device_id in resource.device_ids
        for node in resource.devices[device_id].numa_nodes or (None,)
    ]


def _devices(allocations: Iterable[Allocation]) -> Iterator[DeviceOnNode]:
    for allocation in allocations:
        for node, device_ids in sorted(allocation.ids_by_numa.items()):
            for device_id in device_ids:
                yield DeviceOnNode(allocation.resource_name, device_id, None if node == NO_NUMA_NODE else node)
