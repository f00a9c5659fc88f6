"""The PodResources view of the device manager: each pod's containers with their devices, for monitors on the node.

A read: it changes nothing, and pods that have ended are not in it. One entry per resource, device and NUMA node, never
grouped: a device on two nodes is listed twice, one without topology once. Sidecars and app containers are included, init
containers are not.
Source: kubelet pkg/kubelet/apis/podresources @ 1.37. Intended differences: equal state gives equal order, and a cordoned
device is not allocatable unless a container holds it.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import ContainerKind, Pod


class DeviceOnNode(Struct, frozen=True):
    """One device on one NUMA node; numa_node is None where the device has no topology."""

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


def pods(manager: DeviceManager) -> list[PodDevices]:
    """Every pod of this node that has not ended, by namespace and name."""
    return [
        _view(manager, found)
        for found in sorted(manager.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    ]


def pod(manager: DeviceManager, namespace: str, name: str) -> PodDevices | None:
    """One pod; None when this node has no such pod, or it has ended."""
    named = (found for found in manager.pods.values() if (found.namespace, found.name) == (namespace, name))
    return next((_view(manager, found) for found in named), None)


def allocatable(manager: DeviceManager) -> list[DeviceOnNode]:
    """Every healthy device of a connected plugin, held or not; sorted."""
    return [
        DeviceOnNode(resource_name, device_id, node)
        for resource_name, resource in sorted(manager.resources.items())
        if resource.is_live
        for device_id, device in sorted(resource.devices.items())
        if resource.is_usable(device_id) or (device.healthy and device_id in resource.holders)
        for node in device.numa_nodes or (None,)
    ]


def _view(manager: DeviceManager, pod: Pod) -> PodDevices:
    containers = tuple(
        ContainerDevices(container.name, kind, tuple(_devices(manager.book.of_container(pod.uid, container.name))))
        for kind in (ContainerKind.SIDECAR, ContainerKind.APP)
        for container in pod.containers
        if container.kind is kind
    )
    return PodDevices(pod.namespace, pod.name, containers)


def _devices(allocations: Iterable[Allocation]) -> Iterator[DeviceOnNode]:
    for allocation in allocations:
        for node, device_ids in sorted(allocation.ids_by_numa.items()):
            for device_id in device_ids:
                yield DeviceOnNode(allocation.resource_name, device_id, None if node == NO_NUMA_NODE else node)
