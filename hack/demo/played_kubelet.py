"""Plays the kubelet's device manager of one node: serves a device plugin, allocates to pods, and shows both as a kubelet does.

`python -m hack.demo.played_kubelet KUBECONFIG NODE FOLDER`, in a process of its own like the player of the nodes. FOLDER is
the kubelet's directory: plugins register in device-plugins/kubelet.sock, the checkpoint is in the same directory, and
pod-resources/kubelet.sock serves PodResources. The Node's capacity is written as the kubelet writes it.
Source: kubelet pkg/kubelet/cm/devicemanager/manager.go and pod_devices.go @ 1.37.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, cast

import grpc
import grpc.aio
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.records.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from tests.cluster.api import NO_ANSWER, ApiError, AsyncClient, Node, Object, Pod, open_client
from tests.fakes.pod_resources import AssignedDevices, PodResources

CHECKPOINT: Final = "kubelet_internal_checkpoint"
_FIELD_MANAGER: Final = "kubelet"
_OPTIONS: Final = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
_RETRY_SECONDS: Final = 0.5


class PlayedKubelet(api_pb2_grpc.RegistrationServicer):
    """Of one node and one plugin; enough for a demo that breaks nothing."""

    def __init__(self, client: AsyncClient, node_name: str, folder: Path) -> None:
        self._client, self._node_name, self._folder = client, node_name, folder
        self._plugins = folder / "device-plugins"
        self._resources = PodResources(folder / "pod-resources/kubelet.sock")
        self._resources.allocatable = {}
        self._resource_name = ""
        self._plugin: Any = None
        self._healthy: dict[str, bool] = {}
        # by pod UID
        self._held: dict[str, tuple[AssignedDevices, Allocation]] = {}
        self._following: asyncio.Task[None] | None = None

    async def play(self) -> None:
        self._plugins.mkdir(parents=True, exist_ok=True)
        server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self._plugins / 'kubelet.sock'}")
        await server.start()
        async with self._resources:
            self._save()
            while True:
                try:
                    await self._follow_pods()
                except (ApiError, *NO_ANSWER) as exc:
                    print(f"the pods of the node cannot be watched: {exc}", flush=True)
                await asyncio.sleep(_RETRY_SECONDS)

    async def Register(self, request: api_pb2.RegisterRequest, context: Any) -> api_pb2.Empty:
        channel = grpc.aio.insecure_channel(f"unix:{self._plugins / request.endpoint}", options=_OPTIONS)
        self._plugin = cast("Any", api_pb2_grpc.DevicePluginStub(channel))
        await self._plugin.GetDevicePluginOptions(api_pb2.Empty())
        self._resource_name = request.resource_name
        self._following = asyncio.create_task(self._follow_plugin())
        return api_pb2.Empty()

    async def _follow_plugin(self) -> None:
        async for listed in self._plugin.ListAndWatch(api_pb2.Empty()):
            self._healthy = {device.ID: device.health == "Healthy" for device in listed.devices}
            self._save()
            numbers = {self._resource_name: str(len(self._healthy))}, {self._resource_name: str(len(self._ready()))}
            status = {"status": {"capacity": numbers[0], "allocatable": numbers[1]}}
            await self._client.patch(Node.Status, self._node_name, status, field_manager=_FIELD_MANAGER)

    async def _follow_pods(self) -> None:
        fields: dict[str, Any] = {"spec.nodeName": self._node_name}
        async with aclosing(
            cast("AsyncGenerator[Any]", self._client.watch(Pod, namespace="*", fields=fields))
        ) as events:
            async for kind, pod in events:
                if kind == "DELETED":
                    self._held.pop(str(pod.metadata.uid), None)
                    self._save()
                else:
                    await self._admit(pod)

    async def _admit(self, pod: Object) -> None:
        """Allocate what its first container requests, once."""
        uid, container = str(pod.metadata.uid), pod.spec.containers[0]
        limits = (container.resources and container.resources.limits) or {}
        wanted = int(limits.get(self._resource_name, 0)) if self._resource_name else 0
        if uid in self._held or not wanted:
            return
        taken = {device for row, _ in self._held.values() for device in row.devices}
        ids = tuple([device for device in self._ready() if device not in taken][:wanted])
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        [response] = (await self._plugin.Allocate(request)).container_responses
        row = AssignedDevices(
            pod.metadata.namespace, pod.metadata.name, container.name, self._resource_name, dict.fromkeys(ids, ())
        )
        octets = response.SerializeToString()
        self._held[uid] = row, Allocation(uid, container.name, self._resource_name, {NO_NUMA_NODE: ids}, octets)
        self._save()

    def _ready(self) -> list[str]:
        return sorted(device for device, is_healthy in self._healthy.items() if is_healthy)

    def _save(self) -> None:
        """The checkpoint, and what PodResources shows."""
        registered = {self._resource_name: tuple(self._ready())} if self._resource_name else {}
        self._resources.assigned = [row for row, _ in self._held.values()]
        self._resources.allocatable = {name: dict.fromkeys(ids, ()) for name, ids in registered.items()}
        file = self._plugins / CHECKPOINT
        file.with_suffix(".new").write_text(
            encode(Checkpoint(tuple(held for _, held in self._held.values()), registered))
        )
        file.with_suffix(".new").rename(file)


async def main(kubeconfig: Path, node_name: str, folder: Path) -> None:
    client = AsyncClient(open_client(kubeconfig))
    try:
        await PlayedKubelet(client, node_name, folder).play()
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
