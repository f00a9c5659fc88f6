"""The PodResources service on a real socket, as a monitor sees it."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import json_format
from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as alpha_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/fake"
WANTS_ONE = {RESOURCE: 1}
POD = Pod(
    "uid-1",
    "default",
    "train",
    (
        Container("prepare", ContainerKind.INIT, WANTS_ONE),
        Container("proxy", ContainerKind.SIDECAR, WANTS_ONE),
        Container("main", ContainerKind.APP, WANTS_ONE),
        Container("logger"),
    ),
)


class Clock:
    """Stands still, so that the rate limit depends on the number of calls alone."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Monitor:
    """A client of both versions, and what the server depends on."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock, are_pods_known: asyncio.Event) -> None:
        self.clock = clock
        self.are_pods_known = are_pods_known
        self._v1: Any = api_pb2_grpc.PodResourcesListerStub(channel)
        self._alpha: Any = alpha_pb2_grpc.PodResourcesListerStub(channel)

    async def pods(self) -> Any:
        return json_format.MessageToDict(await self._call(self._v1.List, api_pb2.ListPodResourcesRequest()))

    async def alpha_pods(self) -> Any:
        return json_format.MessageToDict(await self._call(self._alpha.List, alpha_pb2.ListPodResourcesRequest()))

    async def pod(self, name: str, namespace: str = "default") -> Any:
        request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return json_format.MessageToDict(await self._call(self._v1.Get, request))

    async def allocatable(self) -> Any:
        request = api_pb2.AllocatableResourcesRequest()
        return json_format.MessageToDict(await self._call(self._v1.GetAllocatableResources, request))

    async def list_at_once(self) -> Any:
        """Without giving the rate limit time."""
        return await self._v1.List(api_pb2.ListPodResourcesRequest(), timeout=60)

    async def _call(self, method: Any, request: Any) -> Any:
        self.clock.seconds += 1.0
        return await method(request, timeout=60)


@asynccontextmanager
async def monitored(manager: HostedManager, socket: Path) -> AsyncIterator[Monitor]:
    clock, known = Clock(), asyncio.Event()
    known.set()
    server = PodResourcesServer(socket, manager.manager, are_pods_known=known.is_set, clock=clock)
    async with grpc.aio.insecure_channel(f"unix:{socket}", [("grpc.default_authority", "localhost")]) as channel:
        monitor = Monitor(channel, clock, known)
        await server.start()
        yield monitor
        await server.stop()


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[HostedManager]:
    """With a plugin of three devices, one of them on two NUMA nodes, one without any."""
    async with hosted(tmp_path) as manager:
        devices = {"a": FakeDevice(numa_nodes=(0, 1)), "b": FakeDevice(), "c": FakeDevice(healthy=False)}
        plugin = FakePlugin(RESOURCE, devices)
        await manager.register(plugin)
        yield manager
        await plugin.stop()


@pytest.fixture
async def monitor(manager: HostedManager, tmp_path: Path) -> AsyncIterator[Monitor]:
    async with monitored(manager, tmp_path / "pod-resources" / "kubelet.sock") as monitor:
        yield monitor


def on(device_id: str, *nodes: int) -> list[dict[str, Any]]:
    """The entries of one device: a node each, or one without topology. int64 is a string in JSON, 0 is left out."""
    plain = {"resourceName": RESOURCE, "deviceIds": [device_id]}
    return [{**plain, "topology": {"nodes": [{"ID": str(n)} if n else {}]}} for n in nodes] or [plain]


@pytest.mark.kubelet("scenario 76", "scenario 77", "scenario 83", "scenario 92")
async def test_list_get_and_allocatable_with_all_kinds_of_containers(manager: HostedManager, monitor: Monitor) -> None:
    manager.pods(POD)
    await manager.until(lambda: manager.available(RESOURCE) == 0)
    # the sidecar, which came next, reuses the init container's device
    proxy = {"name": "proxy", "devices": on("a", 0, 1)}
    main = {"name": "main", "devices": on("b")}
    pod = {"name": "train", "namespace": "default", "containers": [proxy, main, {"name": "logger"}]}
    assert await monitor.pods() == {"podResources": [pod]}
    assert await monitor.pod("train") == {"podResources": pod}
    assert await monitor.allocatable() == {"devices": [*on("a", 0, 1), *on("b")]}
    plain = {"name": "main", "devices": [{"resourceName": RESOURCE, "deviceIds": ["b"]}]}
    alpha = {"name": "train", "namespace": "default", "containers": [plain, {"name": "logger"}]}
    assert await monitor.alpha_pods() == {"podResources": [alpha]}


@pytest.mark.kubelet("scenario 72")
async def test_entries_go_when_the_pod_ends_and_reads_change_nothing(manager: HostedManager, monitor: Monitor) -> None:
    manager.pods(POD)
    await manager.until(lambda: manager.available(RESOURCE) == 0)
    before = manager.manager.checkpoint()
    for _ in range(3):
        await monitor.pods()
        await monitor.pod("train")
        await monitor.allocatable()
        await monitor.alpha_pods()
    assert manager.manager.checkpoint() == before
    manager.host.do(manager.manager.pod_seen(Pod("uid-1", "default", "train", POD.containers, has_ended=True), 0.0))
    assert await monitor.pods() == {}
    with pytest.raises(grpc.aio.AioRpcError, match="pod train in namespace default not found"):
        await monitor.pod("train")


@pytest.mark.kubelet("behaviour 73", "scenario 75")
async def test_an_unknown_pod_is_an_error_in_the_kubelets_words(manager: HostedManager, monitor: Monitor) -> None:
    manager.pods(POD)
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await monitor.pod("train", "elsewhere")
    assert failed.value.code() is grpc.StatusCode.UNKNOWN
    assert failed.value.details() == "pod train in namespace elsewhere not found"


@pytest.mark.kubelet("scenario 105")
async def test_more_than_the_burst_is_rejected_in_the_kubelets_words(monitor: Monitor) -> None:
    answers = await asyncio.gather(*(monitor.list_at_once() for _ in range(30)), return_exceptions=True)
    rejected = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(rejected) == 20
    assert {(r.code(), r.details()) for r in rejected} == {
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    }
    await monitor.pods()


async def test_unavailable_until_the_pods_are_known(manager: HostedManager, monitor: Monitor) -> None:
    monitor.are_pods_known.clear()
    for ask in (monitor.pods, monitor.alpha_pods, lambda: monitor.pod("train")):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await ask()
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len((await monitor.allocatable())["devices"]) == 3


@pytest.mark.kubelet("scenario 106")
async def test_calls_and_errors_are_counted(monitor: Monitor) -> None:
    def count(version: str, method: str) -> tuple[float, float]:
        errors = metrics.POD_RESOURCES_ERRORS.labels(version, method, "UNKNOWN")._value.get()
        return metrics.POD_RESOURCES_REQUESTS.labels(version, method)._value.get(), errors

    before = count("v1", "get"), count("v1", "list"), count("v1alpha1", "list"), count("v1", "get_allocatable")
    with pytest.raises(grpc.aio.AioRpcError):
        await monitor.pod("unknown")
    await monitor.pods()
    await monitor.alpha_pods()
    await monitor.allocatable()
    after = count("v1", "get"), count("v1", "list"), count("v1alpha1", "list"), count("v1", "get_allocatable")
    grown = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(after, before, strict=True)]
    assert grown == [(1, 1), (1, 0), (1, 0), (1, 0)]


async def test_only_root_reads_and_a_stale_socket_is_replaced(manager: HostedManager, tmp_path: Path) -> None:
    path = tmp_path / "pr" / "kubelet.sock"
    async with monitored(manager, path) as monitor:
        assert await monitor.pods() == {}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
        kept = path.rename(path.with_name("kept"))
    # as after a kill: the file exists and no process serves it
    kept.rename(path)
    async with monitored(manager, path) as monitor:
        assert await monitor.pods() == {}
    assert not path.exists()


async def test_a_socket_that_another_process_serves_is_kept(manager: HostedManager, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    async with monitored(manager, path) as monitor:
        other = PodResourcesServer(path, manager.manager, are_pods_known=lambda: True, clock=Clock())
        with pytest.raises(AgentSettingsError, match="another process serves it"):
            await other.start()
        await other.stop()
        assert await monitor.pods() == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("file", "not a socket", id="a file exists"),
        pytest.param("file/kubelet.sock", "File exists .*/file", id="no directory"),
        pytest.param("x" * 108, "at most 107 bytes", id="too long"),
    ],
)
async def test_an_unusable_path_is_an_error(manager: HostedManager, tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("kept")
    server = PodResourcesServer(tmp_path / name, manager.manager, are_pods_known=lambda: True, clock=Clock())
    with pytest.raises(AgentSettingsError, match=why):
        await server.start()
    await server.stop()
    assert (tmp_path / "file").read_text() == "kept"
