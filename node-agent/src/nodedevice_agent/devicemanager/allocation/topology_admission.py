"""Applies the topology policy to a pod's transaction: the NUMA nodes of each container's devices, or the pod stays pending.

All resources of a container (of the pod, with scope pod) are decided together. The whole transaction is rehearsed before any
plugin is called, so a pod that cannot be aligned causes no calls; alignment is checked again at each container and at each
choice, because other pods or a plugin's preferred devices may have taken what the rehearsal counted on.
Source: kubelet topologymanager scopes @ 1.37, devicemanager/topology_hints.go. Unlike the kubelet, devices that are held
already are never checked again: the kubelet rejects a running pod after a restart with a stricter policy.
"""

from collections.abc import Mapping, Sequence

from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook
from nodedevice_agent.devicemanager.allocation.pod_allocation import PodAllocation
from nodedevice_agent.devicemanager.allocation.selection import near_count, select
from nodedevice_agent.devicemanager.allocation.topology import Hints, Topology, TopologyScope, hints, merge
from nodedevice_agent.devicemanager.pods import ContainerKind, DeviceRequest
from nodedevice_agent.devicemanager.resource import Resource

# The kubelet's words, for users who search for them.
MESSAGE = "resources cannot be allocated with topology locality"


def align(topology: Topology, current: PodAllocation, resources: Mapping[str, Resource], book: AllocationBook) -> bool:
    """Decide the NUMA nodes for the current request, unless they are decided. Returns whether the policy admits it."""
    request = current.request
    if not topology.is_aligning or request is None:
        return True
    if request.container not in current.affinities:
        is_whole_pod = topology.scope is TopologyScope.POD
        collect = _pod_hints if is_whole_pod else _container_hints
        merged = merge(topology, collect(topology, current, resources, book))
        if not merged.is_admitted:
            return False
        containers = {r.container for r in current.requests} if is_whole_pod else {request.container}
        current.affinities.update(dict.fromkeys(containers, merged.affinity))
    return not topology.is_strict or _is_still_possible(current, request, resources[request.resource_name], book)


def first_unaligned(
    topology: Topology, current: PodAllocation, resources: Mapping[str, Resource], book: AllocationBook
) -> DeviceRequest | None:
    """Rehearse a transaction that has not begun, with our own choices. Returns the first request that the policy rejects.

    Devices are reserved during the rehearsal and released at its end; only the decision for the first container stays.
    """
    if not topology.is_aligning:
        return None
    trial = PodAllocation(current.pod, current.requests)
    try:
        while trial.skip_met(book) is None and (request := trial.request) is not None:
            if not align(topology, trial, resources, book):
                return request
            if not current.affinities:
                current.affinities.update(trial.affinities)
            resource = resources[request.resource_name]
            free, affinity = resource.free(book.holders(resource.name)), trial.affinities[request.container]
            selection = select(resource.devices, request.count, trial.reusable(resource), free, affinity)
            trial.reserve(resource, selection.completed())
            trial.advance()
        return None
    finally:
        for resource_name, device_id in trial.reserved():
            del resources[resource_name].reserved[device_id]


def pod_request(requests: Sequence[DeviceRequest]) -> dict[str, int]:
    """The most devices of each resource that a pod has at one time: while it starts, or once it runs."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for request in requests:
        name = request.resource_name
        at_once = running.get(name, 0) + request.count
        if request.kind is not ContainerKind.INIT:
            running[name] = at_once
        peak[name] = max(peak.get(name, 0), at_once)
    return peak


def _container_hints(
    topology: Topology, current: PodAllocation, resources: Mapping[str, Resource], book: AllocationBook
) -> list[Hints]:
    assert current.request is not None
    found = []
    for request in current.requests:
        if request.container != current.request.container:
            continue
        resource = resources[request.resource_name]
        allocation = book.of(current.pod.uid, request.container, request.resource_name)
        held = None if allocation is None else allocation.device_ids
        reusable = current.reusable(resource) if allocation is None else ()
        found.append(_hints(topology, resource, book, request.count, held, reusable))
    return found


def _pod_hints(
    topology: Topology, current: PodAllocation, resources: Mapping[str, Resource], book: AllocationBook
) -> list[Hints]:
    found = []
    for name, count in sorted(pod_request(current.requests).items()):
        containers = [request.container for request in current.requests if request.resource_name == name]
        allocations = [book.of(current.pod.uid, container, name) for container in containers]
        held = tuple(sorted({i for allocation in allocations if allocation is not None for i in allocation.device_ids}))
        # A resource that every container has needs nothing more, even where it is more than they would get today.
        needed = len(held) if None not in allocations else count
        found.append(_hints(topology, resources[name], book, needed, held or None, ()))
    return found


def _hints(
    topology: Topology,
    resource: Resource,
    book: AllocationBook,
    count: int,
    held: tuple[str, ...] | None,
    reusable: tuple[str, ...],
) -> Hints:
    if held is None:
        free = resource.free(book.holders(resource.name))
        return hints(resource.devices, count, free, reusable, topology.numa_nodes)
    # Held devices decide for the rest; another number than requested cannot be met.
    return hints(resource.devices, count, held if len(held) == count else (), (), topology.numa_nodes)


def _is_still_possible(
    current: PodAllocation, request: DeviceRequest, resource: Resource, book: AllocationBook
) -> bool:
    """Whether the decided nodes still have as many devices as this request takes."""
    affinity = current.affinities[request.container]
    if affinity is None or not any(device.numa_nodes for device in resource.devices.values()):
        return True
    usable = (*current.reusable(resource), *resource.free(book.holders(resource.name)))
    return near_count(resource.devices, usable, affinity) >= request.count
