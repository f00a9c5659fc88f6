"""The PodResources service on a Unix socket: v1 and v1alpha1 side by side, for monitors such as GPU exporters.

Source: kubelet pkg/kubelet/apis/podresources @ 1.37 (server_v1.go, server_v1alpha1.go, constants.go). Intended difference:
after a start, List and Get return UNAVAILABLE until this node's pods are known; an empty list would be wrong.
"""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
from nodedevice_api.device_ids import original_id
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as alpha_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc
from nodedevice_common.pacing import TokenBucket
from nodedevice_common.threads import in_thread_if

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import ContainerKind
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.filesystem import MAX_PATH_BYTES, grpc_target, is_served, is_socket, is_too_long, remove
from nodedevice_agent.lib.grpc_server import SMALL_REQUEST_BYTES, options
from nodedevice_agent.podresources import view
from nodedevice_agent.podresources.view import DeviceOnNode, Seen, SeenResource

log = logging.getLogger(__name__)

CALLS_PER_SECOND = 100.0
CALLS_AT_ONCE = 10
# devices in a response
_MOST_IN_LOOP = 4096

T = TypeVar("T")
_Context = grpc.aio.ServicerContext[Any, Any]


class PodResourcesServer:
    """Serves until stopped. The socket has mode 0600 in a directory 0750, because its clients see every pod's devices."""

    def __init__(
        self, path: Path, manager: DeviceManager, *, are_pods_known: Callable[[], bool], clock: Callable[[], float]
    ) -> None:
        self._path = path
        self._is_ours = False
        self._server = grpc.aio.server(options=options(SMALL_REQUEST_BYTES))
        # one rate limit for both versions, like the kubelet
        guard = _CallGuard(clock, are_pods_known)
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(_Lister(manager, guard), self._server)
        alpha_pb2_grpc.add_PodResourcesListerServicer_to_server(_AlphaLister(manager, guard), self._server)

    async def start(self) -> None:
        """Raises AgentSettingsError when the socket cannot be created, or another process serves it."""
        _prepare_socket_path(self._path)
        try:
            self._server.add_insecure_port(grpc_target(self._path))
            self._is_ours = True
            await self._server.start()
            os.chmod(self._path, 0o600)
        except (RuntimeError, OSError) as exc:
            raise _unusable(self._path, str(exc)) from exc
        log.info("serving pod resources", extra={"socket": str(self._path)})

    async def stop(self) -> None:
        await self._server.stop(grace=0.5)
        if self._is_ours:
            remove(self._path)


class _CallGuard:
    """Checks before each call: the rate limit, and whether this node's pods are known. Counts the calls."""

    def __init__(self, clock: Callable[[], float], are_pods_known: Callable[[], bool]) -> None:
        self._clock = clock
        self._are_pods_known = are_pods_known
        self._bucket = TokenBucket(CALLS_PER_SECOND, CALLS_AT_ONCE, clock())

    async def check(self, context: _Context, version: str, method: str, *, needs_pods: bool) -> None:
        metrics.POD_RESOURCES_REQUESTS.labels(version, method).inc()
        if not self._bucket.take(self._clock()):
            # the kubelet's words, which existing clients check for
            await _abort(context, version, method, grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if needs_pods and not self._are_pods_known():
            why = "the pods of this node are not known yet: the agent has not synced them from the API server since its start"
            await _abort(context, version, method, grpc.StatusCode.UNAVAILABLE, why)


async def _abort(context: _Context, version: str, method: str, code: grpc.StatusCode, why: str) -> NoReturn:
    metrics.POD_RESOURCES_ERRORS.labels(version, method, code.name).inc()
    await context.abort(code, why)


class _Lister(api_pb2_grpc.PodResourcesListerServicer):
    def __init__(self, manager: DeviceManager, guard: _CallGuard) -> None:
        self._manager = manager
        self._guard = guard

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: _Context
    ) -> api_pb2.ListPodResourcesResponse:
        await self._guard.check(context, "v1", "list", needs_pods=True)
        pods = view.seen(self._manager)
        return await _made(pods, lambda: api_pb2.ListPodResourcesResponse(pod_resources=map(_pod, pods)))

    async def GetAllocatableResources(
        self, request: api_pb2.AllocatableResourcesRequest, context: _Context
    ) -> api_pb2.AllocatableResourcesResponse:
        await self._guard.check(context, "v1", "get_allocatable", needs_pods=False)
        resources = view.seen_resources(self._manager)
        return await _made(
            resources, lambda: api_pb2.AllocatableResourcesResponse(devices=map(_device, view.allocatable(resources)))
        )

    async def Get(self, request: api_pb2.GetPodResourcesRequest, context: _Context) -> api_pb2.GetPodResourcesResponse:
        await self._guard.check(context, "v1", "get", needs_pods=True)
        pod = view.pod(self._manager, request.pod_namespace, request.pod_name)
        if pod is None:
            # status and words of the kubelet, whose plain error becomes UNKNOWN
            why = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await _abort(context, "v1", "get", grpc.StatusCode.UNKNOWN, why)
        return api_pb2.GetPodResourcesResponse(pod_resources=await _made([pod], lambda: _pod(pod)))


class _AlphaLister(alpha_pb2_grpc.PodResourcesListerServicer):
    def __init__(self, manager: DeviceManager, guard: _CallGuard) -> None:
        self._manager = manager
        self._guard = guard

    async def List(
        self, request: alpha_pb2.ListPodResourcesRequest, context: _Context
    ) -> alpha_pb2.ListPodResourcesResponse:
        await self._guard.check(context, "v1alpha1", "list", needs_pods=True)
        pods = view.seen(self._manager)
        return await _made(pods, lambda: alpha_pb2.ListPodResourcesResponse(pod_resources=map(_alpha_pod, pods)))


async def _made(seen: Iterable[Seen | SeenResource], make: Callable[[], T]) -> T:
    return await in_thread_if(sum(each.size for each in seen) > _MOST_IN_LOOP, make)


def _pod(seen: Seen) -> api_pb2.PodResources:
    containers = [
        api_pb2.ContainerResources(name=container.name, devices=map(_device, container.devices))
        for container in seen.containers()
    ]
    return api_pb2.PodResources(name=seen.pod.name, namespace=seen.pod.namespace, containers=containers)


def _device(device: DeviceOnNode) -> api_pb2.ContainerDevices:
    message = api_pb2.ContainerDevices(resource_name=device.resource_name, device_ids=[original_id(device.device_id)])
    if device.numa_node is not None:
        # absent, not empty, for a device without topology
        message.topology.nodes.add(ID=device.numa_node)
    return message


def _alpha_pod(seen: Seen) -> alpha_pb2.PodResources:
    containers = [
        alpha_pb2.ContainerResources(name=container.name, devices=map(_alpha_device, container.devices))
        for container in seen.containers()
        if container.kind is ContainerKind.APP
    ]
    return alpha_pb2.PodResources(name=seen.pod.name, namespace=seen.pod.namespace, containers=containers)


def _alpha_device(device: DeviceOnNode) -> alpha_pb2.ContainerDevices:
    ids = [original_id(device.device_id)]
    return alpha_pb2.ContainerDevices(resource_name=device.resource_name, device_ids=ids)


def _prepare_socket_path(path: Path) -> None:
    """Create the socket's directory, and remove a stale socket that no process serves."""
    if is_too_long(path):
        raise _unusable(path, f"a socket's path has at most {MAX_PATH_BYTES} bytes")
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        if os.path.lexists(path) and not is_socket(path):
            raise _unusable(path, "the path exists and is not a socket")
        if is_served(path):
            raise _unusable(path, "another process serves it")
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise _unusable(path, f"{exc.strerror} ({exc.filename})") from exc


def _unusable(path: Path, why: str) -> AgentSettingsError:
    return AgentSettingsError(
        f"--pod-resources-socket {path} cannot be used: {why}; give another path, or an empty one to disable the service"
    )
