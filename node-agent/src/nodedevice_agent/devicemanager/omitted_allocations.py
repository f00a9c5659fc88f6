"""Pods that may hold devices of which nobody knows: a NodeDevice's status omitted allocations, and the checkpoint was lost.

A status has room for so many allocations. When it is all that is left, each pod of the node that asks for the resource and has no
allocation may hold any of its devices, so none is given out before these pods are gone. A pod that only waits is among them.
"""

from collections.abc import Collection, Iterable, Mapping

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.resource import Resource

# instead of UIDs, until the pods of the node are known
PODS_NOT_SYNCED = frozenset({""})


def found(resources: Mapping[str, Resource], pods: Collection[Pod], book: AllocationBook) -> dict[str, frozenset[str]]:
    """All pods of the node are known: by resource name, those that may hold what was omitted, as they lack devices here."""
    names = [name for name, resource in resources.items() if resource.use.possible_holders == PODS_NOT_SYNCED]
    return {name: frozenset(pod.uid for pod in pods if _lacks(pod, name, book)) for name in names}


def without(resources: Mapping[str, Resource], pod_uid: str) -> dict[str, frozenset[str]]:
    """By name of each resource of which this pod may have held devices: the others that may."""
    held = {name: r.use.possible_holders for name, r in resources.items() if r.use.possible_holders}
    return {name: uids - {pod_uid} for name, uids in held.items() if pod_uid in uids and uids != PODS_NOT_SYNCED}


def room(resource: Resource, pods: Iterable[Pod]) -> int:
    """How many devices the possible holders may hold, as far as they are known: so many are not free, and stay advertised."""
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
