"""Decodes the messages of the kubelet's pod resources API. No message object leaves this file.

The kubelet has an entry for each device and NUMA node; here each container and resource is one row, and each device one value.
Devices of claims come since 1.36, one row each. Their names are a driver's, whatever it answers; those that no device can have are
left out, and of more than a node can have, the first count.
Source: kubelet pkg/kubelet/apis/podresources v1, pkg/kubelet/cm container_manager_linux.go GetDynamicResources @ 1.37.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from nodedevice_api.device_ids import shown_id
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

from nodedevice_agent.kubelet.readings import ClaimRow, DevicesByID, HeldByPod, PodResourcesRow, RowsByPod

# Of a node, and of one pod. A NodeDevice has 4,096 devices at most, and a claim 32, by the API.
MAX_CLAIM_ROWS: Final = 4096
MAX_CLAIM_ROWS_OF_POD: Final = 1024
_MAX_CDI_IDS: Final = 32
_MAX_CDI_ID: Final = 256
_MAX_SHARE_ID: Final = 36
# as the API validates them in slices and claims
_LABEL: Final = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_POOL: Final = re.compile(rf"{_LABEL.pattern}([./]{_LABEL.pattern})*")
_DRIVER: Final = re.compile(rf"{_LABEL.pattern}([.]{_LABEL.pattern})*", re.IGNORECASE | re.ASCII)
_MAX_DRIVER, _MAX_DEVICE, _MAX_NAME = 63, 63, 253
_NOTHING: Final = HeldByPod()


def all_rows(octets: bytes) -> RowsByPod:
    """A ListPodResourcesResponse. Raises DecodeError."""
    rows: RowsByPod = {}
    room = MAX_CLAIM_ROWS
    for pod in api_pb2.ListPodResourcesResponse.FromString(octets).pod_resources:
        found = _held(pod, room)
        if found != _NOTHING:
            room -= len(found.claim_rows)
            # one that is listed twice, such as a static pod beside its successor
            known = rows.get((pod.namespace, pod.name), _NOTHING)
            rows[pod.namespace, pod.name] = HeldByPod(known.rows + found.rows, known.claim_rows + found.claim_rows)
    return rows


def rows_of_pod(octets: bytes) -> HeldByPod:
    """A GetPodResourcesResponse. Raises DecodeError."""
    return _held(api_pb2.GetPodResourcesResponse.FromString(octets).pod_resources, MAX_CLAIM_ROWS_OF_POD)


def healthy_devices(octets: bytes) -> dict[str, DevicesByID]:
    """An AllocatableResourcesResponse, by resource name. Raises DecodeError."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for entry in api_pb2.AllocatableResourcesResponse.FromString(octets).devices:
        nodes = {node.ID for node in entry.topology.nodes}
        known = found.setdefault(entry.resource_name, {})
        for device_id in map(shown_id, entry.device_ids):
            known[device_id] = tuple(sorted(nodes.union(known.get(device_id, ()))))
    return dict(found)


def _held(pod: api_pb2.PodResources, room: int) -> HeldByPod:
    """room: for so many rows of claims."""
    of_claims = islice(_claim_rows(pod), min(room, MAX_CLAIM_ROWS_OF_POD))
    return HeldByPod(tuple(_rows(pod)), tuple(of_claims))


def _claim_rows(pod: api_pb2.PodResources) -> Iterator[ClaimRow]:
    for container in pod.containers:
        for claim in container.dynamic_resources:
            # a claim is in the namespace of its pod, always
            if claim.claim_namespace == pod.namespace and 0 < len(claim.claim_name) <= _MAX_NAME:
                for device, cdi_ids in _with_cdi_ids(claim.claim_resources):
                    if _is_device(device):
                        yield ClaimRow(
                            pod.namespace,
                            pod.name,
                            container.name,
                            claim.claim_name,
                            device.driver_name,
                            device.pool_name,
                            device.device_name,
                            device.share_id[:_MAX_SHARE_ID],
                            cdi_ids,
                        )


def _with_cdi_ids(
    devices: Iterable[api_pb2.ClaimResource],
) -> Iterator[tuple[api_pb2.ClaimResource, tuple[str, ...]]]:
    """Each with its own CDI names: up to now the kubelet gives it also those of the same driver's devices before it."""
    driver, before = "", list[str]()
    for device in devices:
        shown = [each.name for each in device.cdi_devices]
        is_longer = device.driver_name == driver and shown[: len(before)] == before
        own = shown[len(before) :] if is_longer else shown
        driver, before = device.driver_name, shown
        yield device, tuple(name for name in own[:_MAX_CDI_IDS] if 0 < len(name) <= _MAX_CDI_ID)


def _is_device(device: api_pb2.ClaimResource) -> bool:
    driver, pool, name = device.driver_name, device.pool_name, device.device_name
    return (
        len(driver) <= _MAX_DRIVER
        and len(pool) <= _MAX_NAME
        and len(name) <= _MAX_DEVICE
        and _DRIVER.fullmatch(driver) is not None
        and _POOL.fullmatch(pool) is not None
        and _LABEL.fullmatch(name) is not None
    )


def _rows(pod: api_pb2.PodResources) -> Iterable[PodResourcesRow]:
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:
            ids.setdefault(devices.resource_name, set()).update(map(shown_id, devices.device_ids))
        for resource_name in sorted(ids):
            device_ids = tuple(sorted(ids[resource_name]))
            yield PodResourcesRow(pod.namespace, pod.name, container.name, resource_name, device_ids)
