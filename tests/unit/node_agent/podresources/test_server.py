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
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as alpha_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc

from tests.fakes.sockets import left_behind
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, container, init, pod, sidecar

CONTAINERS = (init("prepare"), sidecar("proxy"), container("main", gpu=1), container("logger"))


class Monitor:
    """A client of both versions, and what the server depends on.

    seconds: of the server's clock, which goes on before each call alone, so that the rate limit depends on the number of calls.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.seconds, self.seconds_before_a_call = 0.0, 1.0
        self.are_pods_known = True
        self._v1: Any = api_pb2_grpc.PodResourcesListerStub(channel)
        self._alpha: Any = alpha_pb2_grpc.PodResourcesListerStub(channel)

    async def pods(self) -> Any:
        return await self._call(self._v1.List, api_pb2.ListPodResourcesRequest())

    async def alpha_pods(self) -> Any:
        return await self._call(self._alpha.List, alpha_pb2.ListPodResourcesRequest())

    async def pod(self, name: str, namespace: str = "default") -> Any:
        request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return await self._call(self._v1.Get, request)

    async def allocatable(self) -> Any:
        return await self._call(self._v1.GetAllocatableResources, api_pb2.AllocatableResourcesRequest())

    async def _call(self, method: Any, request: Any) -> Any:
        self.seconds += self.seconds_before_a_call
        return json_format.MessageToDict(await method(request, timeout=60))


def server_of(scenario: Scenario, path: Path, monitor: Monitor) -> PodResourcesServer:
    manager, clock = scenario.manager, lambda: monitor.seconds
    return PodResourcesServer(path, manager, are_pods_known=lambda: monitor.are_pods_known, clock=clock)


@asynccontextmanager
async def monitored(scenario: Scenario, path: Path) -> AsyncIterator[Monitor]:
    async with grpc.aio.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")]) as channel:
        made = Monitor(channel)
        served = server_of(scenario, path, made)
        await served.start()
        try:
            yield made
        finally:
            await served.stop()


@pytest.fixture
def scenario() -> Scenario:
    """With a plugin of three devices, one of them on two NUMA nodes, one without any."""
    return Scenario.with_plugin([Device("a", numa_nodes=(0, 1)), "b", Device("c", healthy=False)])


@pytest.fixture
async def monitor(scenario: Scenario, tmp_path: Path) -> AsyncIterator[Monitor]:
    async with monitored(scenario, tmp_path / "pod-resources" / "kubelet.sock") as monitor:
        yield monitor


def on(device_id: str, *nodes: int) -> list[dict[str, Any]]:
    """The entries of one device: a node each, or one without topology. int64 is a string in JSON, 0 is left out."""
    plain = {"resourceName": GPU, "deviceIds": [device_id]}
    return [{**plain, "topology": {"nodes": [{"ID": str(n)} if n else {}]}} for n in nodes] or [plain]


@pytest.mark.kubelet("behaviour 72", "scenario 73", "scenario 76", "scenario 77", "scenario 83", "scenario 92")
async def test_list_get_and_allocatable_with_all_kinds_of_containers(scenario: Scenario, monitor: Monitor) -> None:
    scenario.run(pod("train", *CONTAINERS))
    # the sidecar, which came next, reuses the init container's device
    proxy = {"name": "proxy", "devices": on("a", 0, 1)}
    main = {"name": "main", "devices": on("b")}
    train = {"name": "train", "namespace": "default", "containers": [proxy, main, {"name": "logger"}]}
    assert await monitor.pods() == {"podResources": [train]}
    assert await monitor.pod("train") == {"podResources": train}
    assert await monitor.allocatable() == {"devices": [*on("a", 0, 1), *on("b")]}
    plain = {"name": "main", "devices": [{"resourceName": GPU, "deviceIds": ["b"]}]}
    alpha = {"name": "train", "namespace": "default", "containers": [plain, {"name": "logger"}]}
    assert await monitor.alpha_pods() == {"podResources": [alpha]}


@pytest.mark.kubelet("scenario 72")
async def test_entries_go_when_the_pod_ends_and_reads_change_nothing(scenario: Scenario, monitor: Monitor) -> None:
    scenario.run(pod("train", *CONTAINERS))
    before = scenario.manager.checkpoint()
    for _ in range(3):
        await monitor.pods()
        await monitor.pod("train")
        await monitor.allocatable()
        await monitor.alpha_pods()
    assert scenario.manager.checkpoint() == before
    scenario.see(pod("train", *CONTAINERS, has_ended=True))
    assert await monitor.pods() == {}
    with pytest.raises(grpc.aio.AioRpcError, match="pod train in namespace default not found"):
        await monitor.pod("train")


@pytest.mark.kubelet("behaviour 73", "scenario 75")
async def test_an_unknown_pod_is_an_error_in_the_kubelets_words(scenario: Scenario, monitor: Monitor) -> None:
    scenario.see(pod("train"))
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await monitor.pod("train", "elsewhere")
    assert failed.value.code() is grpc.StatusCode.UNKNOWN
    assert failed.value.details() == "pod train in namespace elsewhere not found"


@pytest.mark.kubelet("scenario 105")
async def test_more_than_the_burst_is_rejected_in_the_kubelets_words(monitor: Monitor) -> None:
    monitor.seconds_before_a_call = 0.0
    answers = await asyncio.gather(*(monitor.pods() for _ in range(30)), return_exceptions=True)
    rejected = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(rejected) == 20
    words = "rejected by rate limit"
    assert {(r.code(), r.details()) for r in rejected} == {(grpc.StatusCode.RESOURCE_EXHAUSTED, words)}
    monitor.seconds += 1.0
    await monitor.pods()


async def test_both_versions_have_one_rate_limit(monitor: Monitor) -> None:
    monitor.seconds, monitor.seconds_before_a_call = 1.0, 0.0
    calls = [*(monitor.pods() for _ in range(10)), monitor.alpha_pods()]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert len([answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]) == 1
    # a hundredth of a second is one more
    monitor.seconds += 0.011
    await monitor.alpha_pods()


async def test_unavailable_until_the_pods_are_known(monitor: Monitor) -> None:
    monitor.are_pods_known = False
    for ask in (monitor.pods, monitor.alpha_pods, lambda: monitor.pod("train")):
        with pytest.raises(grpc.aio.AioRpcError, match="the pods of this node are not known yet") as failed:
            await ask()
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len((await monitor.allocatable())["devices"]) == 3


def counted() -> dict[tuple[str, ...], float]:
    """Calls by version and method, errors by their code, too."""
    families = [*metrics.POD_RESOURCES_REQUESTS.collect(), *metrics.POD_RESOURCES_ERRORS.collect()]
    samples = [sample for family in families for sample in family.samples if sample.name.endswith("_total")]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


@pytest.mark.kubelet("scenario 106")
async def test_calls_and_errors_are_counted(monitor: Monitor) -> None:
    before = counted()
    await monitor.pods()
    await monitor.alpha_pods()
    await monitor.allocatable()
    with pytest.raises(grpc.aio.AioRpcError):
        await monitor.pod("unknown")
    monitor.are_pods_known = False
    for ask in (monitor.pods, monitor.alpha_pods, lambda: monitor.pod("unknown")):
        with pytest.raises(grpc.aio.AioRpcError):
            await ask()
    monitor.seconds_before_a_call = 0.0
    await asyncio.gather(*(monitor.allocatable() for _ in range(11)), return_exceptions=True)
    grown = {labels: value - before.get(labels, 0) for labels, value in counted().items()}
    assert {labels: value for labels, value in grown.items() if value} == {
        ("v1", "list"): 2,
        ("v1", "list", "UNAVAILABLE"): 1,
        ("v1", "get"): 2,
        ("v1", "get", "UNKNOWN"): 1,
        ("v1", "get", "UNAVAILABLE"): 1,
        ("v1", "get_allocatable"): 12,
        ("v1", "get_allocatable", "RESOURCE_EXHAUSTED"): 2,
        ("v1alpha1", "list"): 2,
        ("v1alpha1", "list", "UNAVAILABLE"): 1,
    }


async def test_only_root_reads_and_a_stale_socket_is_replaced(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "made" / "pr" / "kubelet.sock"
    async with monitored(scenario, path) as monitor:
        assert await monitor.pods() == {}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    assert not path.exists()
    # as after a kill: the file exists and no process serves it
    left_behind(path)
    async with monitored(scenario, path) as monitor:
        assert await monitor.pods() == {}
    assert not path.exists()


async def test_a_socket_that_another_process_serves_is_kept(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    async with monitored(scenario, path) as monitor:
        other = server_of(scenario, path, monitor)
        with pytest.raises(AgentSettingsError, match="another process serves it"):
            await other.start()
        await other.stop()
        assert await monitor.pods() == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("file", "not a socket", id="a file exists"),
        pytest.param("link", "not a socket", id="a link to nothing exists"),
        pytest.param("file/kubelet.sock", "File exists .*/file", id="no directory"),
        pytest.param("x" * 108, "at most 107 bytes", id="too long"),
    ],
)
async def test_an_unusable_path_is_an_error(scenario: Scenario, tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    path = tmp_path / name
    served = PodResourcesServer(path, scenario.manager, are_pods_known=lambda: True, clock=lambda: 0.0)
    words = f"^--pod-resources-socket {path} cannot be used: .*{why}.*; give another path, or an empty one to disable the service$"
    with pytest.raises(AgentSettingsError, match=words):
        await served.start()
    await served.stop()
    assert (tmp_path / "file").read_text() == "kept"
    assert (tmp_path / "link").is_symlink()
