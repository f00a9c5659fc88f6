"""Pods that may hold unknown devices: a NodeDevice's status omitted allocations, and the checkpoint was lost.

A status has room for a limited number of allocations. If only the status is left, each pod of the node that requests the resource
and lacks an allocation may hold any of its devices. No device is allocated before these pods, even pending ones, are gone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.use import PODS_NOT_SYNCED


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
    return lacking(resource, (pod for pod in pods if pod.uid in resource.use.possible_holders))


def lacking(resource: Resource, pods: Iterable[Pod]) -> int:
    """The number of devices of the resource that these pods request and do not hold."""
    held = Counter(resource.use.holders.values())
    return sum(max(pod.requested_count(resource.name) - held[pod.uid], 0) for pod in pods)


def _lacks(pod: Pod, resource_name: str, book: AllocationBook) -> bool:
    requests = [request for request in pod.device_requests if request.resource_name == resource_name]
    held = (book.of(pod.uid, request.container, resource_name) for request in requests)
    return any(a is None or len(a.device_ids) < r.count for a, r in zip(held, requests, strict=True))
