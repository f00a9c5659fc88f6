"""Pods that may hold unknown devices: a NodeDevice's status omitted allocations, and the checkpoint was lost.

A status has room for a limited number of allocations. If only the status is left, each pod of the node that requests the resource
and lacks an allocation may hold any of its devices. No device is allocated before these pods are gone. They include pods that are
only pending.
"""

from collections.abc import Collection, Iterable, Mapping

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.resource import Resource

# instead of UIDs, until the pods of the node are known
PODS_NOT_SYNCED = frozenset({""})


def found(resources: Mapping[str, Resource], pods: Collection[Pod], book: AllocationBook) -> dict[str, frozenset[str]]:
    """After all pods of the node are known: by resource name, the pods that lack devices here and may hold omitted ones."""
    names = [name for name, resource in resources.items() if resource.use.possible_holders == PODS_NOT_SYNCED]
    return {name: frozenset(pod.uid for pod in pods if _lacks(pod, name, book)) for name in names}


def without(resources: Mapping[str, Resource], pod_uid: str) -> dict[str, frozenset[str]]:
    """The remaining possible holders without this pod, by name of each resource that it may have held."""
    held = {name: r.use.possible_holders for name, r in resources.items() if r.use.possible_holders}
    return {name: uids - {pod_uid} for name, uids in held.items() if pod_uid in uids and uids != PODS_NOT_SYNCED}


def room(resource: Resource, pods: Iterable[Pod]) -> int:
    """The number of devices that known possible holders may hold: these are not free, but stay advertised."""
    held = list(resource.use.holders.values())
    lacking = (
        pod.requested_count(resource.name) - held.count(pod.uid)
        for pod in pods
        if pod.uid in resource.use.possible_holders
    )
    return sum(max(count, 0) for count in lacking)


def _lacks(pod: Pod, resource_name: str, book: AllocationBook) -> bool:
    for request in pod.device_requests:
        held = book.of(pod.uid, request.container, resource_name)
        if request.resource_name == resource_name and (held is None or len(held.device_ids) < request.count):
            return True
    return False
