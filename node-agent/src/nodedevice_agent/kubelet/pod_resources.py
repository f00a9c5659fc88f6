"""Calls the kubelet's pod resources service: which containers hold which devices, and which devices are healthy.

Each List makes the kubelet free the devices of ended pods; Get frees nothing. Both omit ordinary init containers.
Source: kubelet pkg/kubelet/apis/podresources v1 @ 1.37; limits of upstream's own client.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2
from nodedevice_common.threads import in_thread_if

from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.deviceplugin.connection import open_channel, rpc_error_text
from nodedevice_agent.kubelet import codec
from nodedevice_agent.kubelet.readings import NO_DEVICES, NO_HOLDERS, HealthyDevices, HeldByPod, RowsByPod

CALL_SECONDS: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# some hundred devices; each takes a microsecond or two to decode
MAX_BYTES_IN_LOOP: Final = 16 * 1024
_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"].full_name
# an error without its own status, and a missing method
_REFUSALS: Final = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED)

T = TypeVar("T")


class PodResourcesUnavailable(Exception):
    """The kubelet does not respond. The text comes from gRPC."""


class PodResourcesRefused(PodResourcesUnavailable):
    """The kubelet does not know the requested pod, or does not serve this call."""


@asynccontextmanager
async def connected(socket: Path) -> AsyncIterator["PodResources"]:
    """Open one connection for several calls. It does not connect before the first call."""
    async with open_channel(socket, _MAX_MESSAGE_BYTES) as channel:
        yield PodResources(channel)


class PodResources:
    """Each method raises PodResourcesUnavailable."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def list_pods(self, entries: Iterable[Allocation] = ()) -> RowsByPod:
        """Return the rows of every active pod with devices. entries: of the checkpoint; equal device IDs share their objects."""
        request = api_pb2.ListPodResourcesRequest().SerializeToString()
        return await self._call("List", request, partial(codec.all_rows, entries=entries))

    async def get_pod(self, namespace: str, name: str) -> HeldByPod:
        """Return the rows of one active pod. Also raises PodResourcesRefused."""
        request = api_pb2.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        return await self._call("Get", request.SerializeToString(), codec.rows_of_pod)

    async def list_devices(
        self, before: HealthyDevices = NO_DEVICES, held: Mapping[str, Collection[str]] = NO_HOLDERS
    ) -> HealthyDevices:
        """Return the healthy devices. before: the last reading. held: device IDs that pods hold, by resource name."""
        request = api_pb2.AllocatableResourcesRequest().SerializeToString()
        return await self._call(
            "GetAllocatableResources", request, partial(codec.healthy_devices, before=before, held=held)
        )

    async def _call(self, name: str, request: bytes, decode: Callable[[bytes], T]) -> T:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{_SERVICE}/{name}")
        try:
            octets = await method(request, timeout=CALL_SECONDS)
            return await in_thread_if(len(octets) > MAX_BYTES_IN_LOOP, partial(decode, octets))
        except grpc.aio.AioRpcError as exc:
            if exc.code() in _REFUSALS:
                raise PodResourcesRefused(rpc_error_text(exc)) from exc
            raise PodResourcesUnavailable(rpc_error_text(exc)) from exc
        except DecodeError as exc:
            raise PodResourcesUnavailable("the response is not a message of the pod resources API") from exc
