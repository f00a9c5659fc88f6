"""Requests of pods that the kubelet's own device manager has met, of resources that no plugin serves here."""

from collections.abc import Collection

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.resource_table import ResourceTable

# container and resource name
Request = tuple[str, str]


class KubeletRequests:
    """The kubelet gives these containers their devices itself, so their pods get none here, and lack none."""

    def __init__(self, table: ResourceTable, book: AllocationBook) -> None:
        self._table = table
        self._book = book
        # by pod UID
        self._met: dict[str, frozenset[Request]] = {}

    def add(self, pod: Pod, requests: Collection[Request]) -> bool:
        """Whether one of them counts: a resource that a plugin serves here, and what is allocated here, are ignored."""
        asked = {(request.container, request.resource_name) for request in pod.device_requests}
        met = {request for request in asked.intersection(requests) if self._is_unserved(pod.uid, *request)}
        if met:
            self._met[pod.uid] = self._met.get(pod.uid, frozenset()) | met
        return bool(met)

    def without(self, pod: Pod) -> Pod:
        """The pod without the requests that are met."""
        return pod.without(self._met[pod.uid]) if pod.uid in self._met else pod

    def forget(self, pod_uid: str) -> None:
        self._met.pop(pod_uid, None)

    def _is_unserved(self, pod_uid: str, container: str, resource_name: str) -> bool:
        return self._table.is_disconnected(resource_name) and self._book.of(pod_uid, container, resource_name) is None
