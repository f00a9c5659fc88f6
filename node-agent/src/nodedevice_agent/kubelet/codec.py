"""Decodes the messages of the kubelet's pod resources API. No message object leaves this file.

The kubelet has an entry for each device and NUMA node; here each container and resource is one row, and each device one value.
Source: kubelet pkg/kubelet/apis/podresources v1 @ 1.37.
"""

from collections.abc import Iterable

from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

from nodedevice_agent.kubelet.readings import DevicesByID, PodResourcesRow, RowsByPod


def all_rows(octets: bytes) -> RowsByPod:
    """A ListPodResourcesResponse. Raises DecodeError."""
    rows: RowsByPod = {}
    for pod in api_pb2.ListPodResourcesResponse.FromString(octets).pod_resources:
        if found := tuple(_rows(pod)):
            # one that is listed twice, such as a static pod beside its successor
            rows[pod.namespace, pod.name] = (*rows.get((pod.namespace, pod.name), ()), *found)
    return rows


def rows_of_pod(octets: bytes) -> tuple[PodResourcesRow, ...]:
    """A GetPodResourcesResponse. Raises DecodeError."""
    return tuple(_rows(api_pb2.GetPodResourcesResponse.FromString(octets).pod_resources))


def healthy_devices(octets: bytes) -> dict[str, DevicesByID]:
    """An AllocatableResourcesResponse, by resource name. Raises DecodeError."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for entry in api_pb2.AllocatableResourcesResponse.FromString(octets).devices:
        nodes = {node.ID for node in entry.topology.nodes}
        known = found.setdefault(entry.resource_name, {})
        for device_id in entry.device_ids:
            known[device_id] = tuple(sorted(nodes.union(known.get(device_id, ()))))
    return dict(found)


def _rows(pod: api_pb2.PodResources) -> Iterable[PodResourcesRow]:
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        for resource_name in sorted(ids):
            device_ids = tuple(sorted(ids[resource_name]))
            yield PodResourcesRow(pod.namespace, pod.name, container.name, resource_name, device_ids)
