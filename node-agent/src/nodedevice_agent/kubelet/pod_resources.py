"""The kubelet's pod resources service: which containers have which devices, and which devices are healthy.

Each List makes the kubelet free the devices of pods that have ended; that is all that changes there. Get frees nothing. Both leave
out ordinary init containers. GetAllocatableResources has healthy devices alone, held or not.
Source: kubelet pkg/kubelet/apis/podresources v1 @ 1.37; limits as upstream's own client has them.
"""

from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

from nodedevice_agent.deviceplugin.connection import open_channel, rpc_error_text
from nodedevice_agent.kubelet.attribution import PodResourcesRow

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.podresources.v1.api_pb2_grpc import PodResourcesListerAsyncStub

POD_RESOURCES = "pod-resources/kubelet.sock"
LIST_SECONDS = 5.0
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# errors without a status of their own, and no such method
_REFUSALS = grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED

T = TypeVar("T")


class PodResourcesUnavailable(Exception):
    """The kubelet does not respond; the text is gRPC's own."""


class PodResourcesRefused(PodResourcesUnavailable):
    """The kubelet does not have what it was asked for, or does not serve this call."""


async def list_pod_resources(socket: Path) -> tuple[PodResourcesRow, ...]:
    """Every container of an active pod that has devices. Raises PodResourcesUnavailable."""
    async with open_channel(socket, _MAX_MESSAGE_BYTES) as channel:
        response = await _answer(_stub(channel).List(api_pb2.ListPodResourcesRequest(), timeout=LIST_SECONDS))
    return tuple(row for pod in response.pod_resources for row in _rows(pod))


async def get_pods(socket: Path, pods: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[PodResourcesRow, ...]]:
    """The same of single active pods, by namespace and name. Raises PodResourcesRefused, PodResourcesUnavailable."""
    found: dict[tuple[str, str], tuple[PodResourcesRow, ...]] = {}
    async with open_channel(socket, _MAX_MESSAGE_BYTES) as channel:
        for namespace, name in pods:
            request = api_pb2.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
            response = await _answer(_stub(channel).Get(request, timeout=LIST_SECONDS))
            found[namespace, name] = tuple(_rows(response.pod_resources))
    return found


async def list_allocatable(socket: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    """Healthy devices by resource name and ID, with their NUMA nodes, sorted. Raises PodResourcesUnavailable."""
    async with open_channel(socket, _MAX_MESSAGE_BYTES) as channel:
        request = api_pb2.AllocatableResourcesRequest()
        response = await _answer(_stub(channel).GetAllocatableResources(request, timeout=LIST_SECONDS))
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    # one entry for each device and NUMA node
    for entry in response.devices:
        nodes = {node.ID for node in entry.topology.nodes}
        known = found.setdefault(entry.resource_name, {})
        for device_id in entry.device_ids:
            known[device_id] = tuple(sorted(nodes.union(known.get(device_id, ()))))
    return found


def _stub(channel: grpc.aio.Channel) -> "PodResourcesListerAsyncStub":
    return cast("PodResourcesListerAsyncStub", api_pb2_grpc.PodResourcesListerStub(channel))


async def _answer(call: Awaitable[T]) -> T:
    try:
        response = await call
    except grpc.aio.AioRpcError as exc:
        if exc.code() in _REFUSALS:
            raise PodResourcesRefused(rpc_error_text(exc)) from exc
        raise PodResourcesUnavailable(rpc_error_text(exc)) from exc
    if response is None:
        raise PodResourcesUnavailable("the response is not a message of the pod resources API")
    return response


def _rows(pod: api_pb2.PodResources) -> Iterable[PodResourcesRow]:
    """One for each container and resource: the message has an entry for each device and NUMA node."""
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        for resource_name in sorted(ids):
            device_ids = tuple(sorted(ids[resource_name]))
            yield PodResourcesRow(pod.namespace, pod.name, container.name, resource_name, device_ids)
