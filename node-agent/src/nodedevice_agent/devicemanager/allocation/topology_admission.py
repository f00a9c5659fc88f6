"""A pod's transaction under a topology policy: which NUMA nodes each container's devices come from, or that it has to wait.

All resources of a container (of the pod, with scope pod) are decided together. The whole transaction is rehearsed before
any plugin is asked, so a pod that cannot be aligned costs nobody a call; it is looked at again at each container, and at
each choice, since other pods and a plugin's advice may have taken what the rehearsal counted on.
Source: kubelet topologymanager scopes @ 1.37, devicemanager/topology_hints.go. Devices that are held already are never
judged again: the kubelet refuses a running pod after a restart with a stricter policy.
"""

from collections.abc import Mapping, Sequence

from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook
from nodedevice_agent.devicemanager.allocation.pod_allocation import Admission
from nodedevice_agent.devicemanager.allocation.selection import choice, near_count
from nodedevice_agent.devicemanager.allocation.topology import Hints, Scope, Topology, hints, merge
from nodedevice_agent.devicemanager.pods import ContainerKind, Need
from nodedevice_agent.devicemanager.resource import Resource

MESSAGE = "resources cannot be allocated with topology locality"


def settle(topology: Topology, admission: Admission, resources: Mapping[str, Resource], book: AllocationBook) -> bool:
    """Decide the NUMA nodes for the current need, if that was not done yet. Returns whether the policy admits it."""
    need = admission.need
    if not topology.is_aligning or need is None:
        return True
    if need.container not in admission.affinities:
        is_whole_pod = topology.scope is Scope.POD
        said = _of_pod if is_whole_pod else _of_container
        merged = merge(topology, said(topology, admission, resources, book))
        if not merged.is_admitted:
            return False
        together = {n.container for n in admission.needs} if is_whole_pod else {need.container}
        admission.affinities.update(dict.fromkeys(together, merged.affinity))
    return not topology.is_strict or _is_kept(admission, need, resources[need.resource_name], book)


def first_refused(
    topology: Topology, admission: Admission, resources: Mapping[str, Resource], book: AllocationBook
) -> Need | None:
    """The first need that the policy refuses, going through a transaction that has not begun, with our own choices.

    Devices are reserved on the way and given back at its end: all that stays is what was decided for the first container.
    """
    if not topology.is_aligning:
        return None
    trial = Admission(admission.pod, admission.needs)
    try:
        while trial.skip_held(book) is None and (need := trial.need) is not None:
            if not settle(topology, trial, resources, book):
                return need
            if not admission.affinities:
                admission.affinities.update(trial.affinities)
            resource = resources[need.resource_name]
            free, affinity = resource.free(book.holders(resource.name)), trial.affinities[need.container]
            picked = choice(resource.devices, need.count, trial.reusable(resource), free, affinity)
            trial.reserve(resource, picked.completed())
            trial.advance()
        return None
    finally:
        for resource_name, device_id in trial.reserved():
            del resources[resource_name].reserved[device_id]


def pod_request(needs: Sequence[Need]) -> dict[str, int]:
    """How many devices of each resource a pod has at once at most: while it starts, or once it runs."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for need in needs:
        name = need.resource_name
        at_once = running.get(name, 0) + need.count
        if need.kind is not ContainerKind.INIT:
            running[name] = at_once
        peak[name] = max(peak.get(name, 0), at_once)
    return peak


def _of_container(
    topology: Topology, admission: Admission, resources: Mapping[str, Resource], book: AllocationBook
) -> list[Hints]:
    current = admission.need
    assert current is not None
    said = []
    for need in admission.needs:
        if need.container != current.container:
            continue
        resource = resources[need.resource_name]
        held = book.of(admission.pod.uid, need.container, need.resource_name)
        reusable = admission.reusable(resource) if held is None else ()
        said.append(
            _hints(topology, resource, book, need.count, held.device_ids if held is not None else None, reusable)
        )
    return said


def _of_pod(
    topology: Topology, admission: Admission, resources: Mapping[str, Resource], book: AllocationBook
) -> list[Hints]:
    said = []
    for name, count in sorted(pod_request(admission.needs).items()):
        mine = [n for n in admission.needs if n.resource_name == name]
        entries = [book.of(admission.pod.uid, need.container, name) for need in mine]
        held = tuple(sorted({i for entry in entries if entry is not None for i in entry.device_ids}))
        # nothing more is needed of what every container has, also where it is more than they would get today
        wanted = len(held) if None not in entries else count
        said.append(_hints(topology, resources[name], book, wanted, held or None, ()))
    return said


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
    # what is held decides for the rest; another number than is asked for has no answer
    return hints(resource.devices, count, held if len(held) == count else (), (), topology.numa_nodes)


def _is_kept(admission: Admission, need: Need, resource: Resource, book: AllocationBook) -> bool:
    """There still are as many devices on the decided nodes as this need takes."""
    affinity = admission.affinities[need.container]
    if affinity is None or not any(device.numa_nodes for device in resource.devices.values()):
        return True
    offered = (*admission.reusable(resource), *resource.free(book.holders(resource.name)))
    return near_count(resource.devices, offered, affinity) >= need.count
