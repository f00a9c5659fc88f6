"""The kubelet's pod resources as a server whose answer a test chooses.

async with PodResources(socket) as resources:
    resources.assigned = [...]
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

# devices of a resource
_MANY = 10_000


class Get(Enum):
    """Of kubelets since 1.34, of those before, and before 1.27. Source: kubelet server_v1.go @ 1.27, 1.33, 1.37."""

    SERVED = "served"
    OFF = "off"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class AssignedDevices:
    """One container's devices of one resource; several rows of a pod become one pod on the wire."""

    namespace: str
    name: str
    container: str
    resource_name: str
    # device ID to NUMA nodes
    devices: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ClaimedDevice:
    """A device that one container has by a claim, which is in its pod's namespace."""

    namespace: str
    name: str
    container: str
    claim: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    cdi: str = ""


class PodResources(api_pb2_grpc.PodResourcesListerServicer):
    """Serves while entered. `refusal`: what calls are refused with, if anything; `calls`: of List.

    stick: from here on it does not answer; go_on: and now it does.

    get: how it answers for single pods: in earnest, with no such method, or as a kubelet that has it and does not serve it.
    asked: the pods for which Get was called.

    allocatable: by resource name and device ID the NUMA nodes; None: an old kubelet, which does not say.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.assigned: list[AssignedDevices] = []
        self.claimed: list[ClaimedDevice] = []
        self.allocatable: dict[str, dict[str, tuple[int, ...]]] | None = None
        self.refusal = ""
        self._may_answer = asyncio.Event()
        self._may_answer.set()
        self.calls = 0
        self.get = Get.SERVED
        self._long: dict[str, tuple[Mapping[str, tuple[int, ...]], bytes]] = {}
        self.asked: list[str] = []

    def stick(self) -> None:
        self._may_answer.clear()

    def go_on(self) -> None:
        self._may_answer.set()

    async def __aenter__(self) -> Self:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def List(self, request: Any, context: Any) -> api_pb2.ListPodResourcesResponse:
        self.calls += 1
        await self._answer(context)
        pods: dict[tuple[str, str], list[AssignedDevices | ClaimedDevice]] = {}
        for row in self._rows():
            pods.setdefault((row.namespace, row.name), []).append(row)
        return api_pb2.ListPodResourcesResponse(
            pod_resources=[
                api_pb2.PodResources(namespace=namespace, name=name, containers=map(_container, rows))
                for (namespace, name), rows in pods.items()
            ]
        )

    async def Get(self, request: Any, context: Any) -> api_pb2.GetPodResourcesResponse:
        self.asked.append(request.pod_name)
        await self._answer(context)
        if self.get is Get.UNKNOWN:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister")
        if self.get is Get.OFF:
            await context.abort(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")
        rows = [r for r in self._rows() if (r.namespace, r.name) == (request.pod_namespace, request.pod_name)]
        if not rows:
            missing = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, missing)
        found = api_pb2.PodResources(namespace=rows[0].namespace, name=rows[0].name, containers=map(_container, rows))
        return api_pb2.GetPodResourcesResponse(pod_resources=found)

    async def GetAllocatableResources(self, request: Any, context: Any) -> api_pb2.AllocatableResourcesResponse:
        await self._answer(context)
        if self.allocatable is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "API GetAllocatableResources disabled")
        found = api_pb2.AllocatableResourcesResponse()
        for name, ids in (self.allocatable or {}).items():
            found.MergeFromString(self._listed(AssignedDevices("", "", "", name, ids)))
        return found

    def _listed(self, row: AssignedDevices) -> bytes:
        """Encoded, once where it is long: who changes one with as many devices gives it another mapping."""
        before, octets = self._long.get(row.resource_name, (None, b""))
        if before is not row.devices:
            octets = api_pb2.AllocatableResourcesResponse(devices=_devices(row)).SerializeToString()
            if len(row.devices) > _MANY:
                self._long[row.resource_name] = row.devices, octets
        return octets

    def _rows(self) -> list[AssignedDevices | ClaimedDevice]:
        return [*self.assigned, *self.claimed]

    async def _answer(self, context: Any) -> None:
        await self._may_answer.wait()
        if self.refusal:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.refusal)


def _container(row: AssignedDevices | ClaimedDevice) -> api_pb2.ContainerResources:
    if isinstance(row, ClaimedDevice):
        return api_pb2.ContainerResources(name=row.container, dynamic_resources=[_claimed(row)])
    return api_pb2.ContainerResources(name=row.container, devices=_devices(row))


def _claimed(row: ClaimedDevice) -> api_pb2.DynamicResource:
    found = api_pb2.DynamicResource(claim_name=row.claim, claim_namespace=row.namespace)
    device = found.claim_resources.add(driver_name=row.driver, pool_name=row.pool, device_name=row.device)
    if row.share_id:
        device.share_id = row.share_id
    if row.cdi:
        device.cdi_devices.add(name=row.cdi)
    return found


def _devices(row: AssignedDevices) -> Iterable[api_pb2.ContainerDevices]:
    """One for each device and NUMA node, never grouped, as the kubelet has it."""
    for device_id, nodes in row.devices.items():
        for node in nodes or (None,):
            found = api_pb2.ContainerDevices(resource_name=row.resource_name, device_ids=[device_id])
            if node is not None:
                found.topology.nodes.add(ID=node)
            yield found
