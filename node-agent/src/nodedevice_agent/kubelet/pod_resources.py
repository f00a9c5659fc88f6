"""The kubelet's pod resources, asked for: which container has which devices, by the names of pods.

Source: kubelet pkg/kubelet/apis/podresources v1 @ 1.37; limits as upstream's own client has them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

from nodedevice_agent.kubelet.attribution import Row
from nodedevice_agent.lib.unix_sockets import grpc_target

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.podresources.v1.api_pb2_grpc import PodResourcesListerAsyncStub

LIST_SECONDS = 5.0
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    # else a kubelet that started anew would be asked over the connection to the one before
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.enable_http_proxy", 0),
)


class PodResourcesUnavailable(Exception):
    """The kubelet does not answer; the text is gRPC's own."""


async def list_pod_resources(socket: Path) -> tuple[Row, ...]:
    """Every container of an active pod that has devices. Raises PodResourcesUnavailable."""
    async with grpc.aio.insecure_channel(grpc_target(socket), options=_OPTIONS) as channel:
        stub = cast("PodResourcesListerAsyncStub", api_pb2_grpc.PodResourcesListerStub(channel))
        try:
            answer = await stub.List(api_pb2.ListPodResourcesRequest(), timeout=LIST_SECONDS)
        except grpc.aio.AioRpcError as exc:
            raise PodResourcesUnavailable(f"{exc.code().name}: {exc.details() or 'no details'}") from exc
    if answer is None:
        raise PodResourcesUnavailable("the answer is no message of the pod resources API")
    return tuple(row for pod in answer.pod_resources for row in _rows(pod))


def _rows(pod: api_pb2.PodResources) -> Iterable[Row]:
    """One for each container and resource: on the wire each device, and each NUMA node of it, stands by itself."""
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        for resource_name in sorted(ids):
            device_ids = tuple(sorted(ids[resource_name]))
            yield Row(pod.namespace, pod.name, container.name, resource_name, device_ids)
