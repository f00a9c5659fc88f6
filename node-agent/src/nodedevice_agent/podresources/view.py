"""The PodResources view of the device manager: each pod's containers with their devices, for monitors on the node.

A read: it changes nothing, and pods that have ended are not in it. One entry per resource, device and NUMA node, never
grouped: a device on two nodes is listed twice, one without topology once. Sidecars and app containers are included, init
containers are not.
Source: kubelet pkg/kubelet/apis/podresources @ 1.37. Intended differences: equal state gives equal order, and a cordoned
device is not allocatable unless a container holds it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodedevice_agent.devicemanager.allocation.allocations import NO_NUMA_NODE, Allocation, by_numa
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import ContainerKind, Pod


@dataclass(frozen=True, slots=True)
class DeviceOnNode:
    """One device on one NUMA node; numa_node is None where the device has no topology."""

    resource_name: str
    device_id: str
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    name: str
    kind: ContainerKind
    devices: tuple[DeviceOnNode, ...] = ()


@dataclass(frozen=True, slots=True)
class PodDevices:
    """containers: sidecars, then app containers, each in the pod's order, including those without devices."""

    namespace: str
    name: str
    containers: tuple[ContainerDevices, ...] = ()


def pods(manager: DeviceManager) -> list[PodDevices]:
    """Every pod of this node that has not ended, by namespace and name."""
    found = sorted(manager.pods(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    return [_view(manager, pod) for pod in found]


def pod(manager: DeviceManager, namespace: str, name: str) -> PodDevices | None:
    """One pod; None when this node has no such pod, or it has ended."""
    named = (found for found in manager.pods() if (found.namespace, found.name) == (namespace, name))
    found = next(named, None)
    return None if found is None else _view(manager, found)


def allocatable(manager: DeviceManager) -> list[DeviceOnNode]:
    """Every healthy device of a connected plugin, held or not; sorted."""
    return [
        seen
        for resource_name, resource in sorted(manager.resources.items())
        if resource.is_live
        for device_id, device in sorted(resource.devices.items())
        if resource.is_usable(device_id) or (device.healthy and device_id in resource.holders)
        for seen in _on_nodes(resource_name, device_id, device.numa_nodes)
    ]


def _view(manager: DeviceManager, pod: Pod) -> PodDevices:
    held: dict[str, list[Allocation]] = {}
    for allocation in manager.book.of_pod(pod.uid):
        held.setdefault(allocation.container, []).append(allocation)
    containers = tuple(
        ContainerDevices(container.name, kind, tuple(_devices(held.get(container.name, ()))))
        for kind in (ContainerKind.SIDECAR, ContainerKind.APP)
        for container in pod.containers
        if container.kind is kind
    )
    return PodDevices(pod.namespace, pod.name, containers)


def _devices(allocations: "list[Allocation] | tuple[()]") -> Iterator[DeviceOnNode]:
    for allocation in sorted(allocations, key=lambda a: a.resource_name):
        for node in sorted(allocation.ids_by_numa):
            for device_id in allocation.ids_by_numa[node]:
                yield DeviceOnNode(allocation.resource_name, device_id, None if node == NO_NUMA_NODE else node)


def _on_nodes(resource_name: str, device_id: str, numa_nodes: tuple[int, ...]) -> Iterator[DeviceOnNode]:
    for node in by_numa([device_id], {device_id: numa_nodes}):
        yield DeviceOnNode(resource_name, device_id, None if node == NO_NUMA_NODE else node)
