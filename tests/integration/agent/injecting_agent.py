"""An agent in process with a device plugin and a runtime on real sockets, and a pod that asks for the plugin's device."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2 as plugin_pb2
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.kubelet_reader import reader_of

RESOURCE = "example.com/fake"
POD = Pod("uid-1", "default", "train", (Container("main", limits={RESOURCE: 1}), Container("log")))
HELD = {"required-plugins.noderesource.dev": "[ nodedevice ]"}


def answer(device_ids: Sequence[str]) -> plugin_pb2.ContainerAllocateResponse:
    return plugin_pb2.ContainerAllocateResponse(
        envs={"IDS": ",".join(device_ids)},
        devices=[plugin_pb2.DeviceSpec(container_path="/dev/fake", host_path="/dev/null", permissions="rw")],
    )


def backend_of(manager: HostedManager, folder: Path) -> NriBackend:
    settings = AgentSettings(nri_socket=str(folder / "nri.sock"), kubelet_dir=str(folder / "kubelet"))
    return NriBackend(settings, manager.host, reader_of(settings.kubelet_dir), lambda: None)


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[HostedManager]:
    """Connected to any runtime that listens."""
    async with hosted(folder, waits_for_runtime=True) as manager, background(backend_of(manager, folder).run()):
        yield manager


def sandbox() -> api_pb2.PodSandbox:
    return api_pb2.PodSandbox(id="s", name=POD.name, namespace="default", uid=POD.uid, annotations=HELD)


def made(name: str = "main", number: int = 1) -> api_pb2.Container:
    return api_pb2.Container(id=f"{name}-{number}", pod_sandbox_id="s", name=name)


async def with_pod(manager: HostedManager, pod: Pod = POD) -> None:
    """The plugin's only device is allocated to it."""
    manager.pods(pod)
    await manager.until(lambda: holders(manager) == {"a": pod.uid})


def holders(manager: HostedManager) -> dict[str, str]:
    return dict(manager.manager.resources[RESOURCE].use.holders)
