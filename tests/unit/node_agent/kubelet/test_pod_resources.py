"""What the kubelet is asked, and what becomes of an answer: each call with its path and its request."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused, PodResourcesUnavailable
from nodedevice_agent.kubelet.readings import HeldByPod
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

HELD = api_pb2.PodResources(
    namespace="ns",
    name="p",
    containers=[
        api_pb2.ContainerResources(
            name="main", devices=[api_pb2.ContainerDevices(resource_name="example.com/gpu", device_ids=["a"])]
        )
    ],
)
ROWS = HeldByPod((PodResourcesRow("ns", "p", "main", "example.com/gpu", ("a",)),))


class Channel:
    """Answers each call so, or fails."""

    def __init__(self, answer: bytes | grpc.aio.AioRpcError) -> None:
        self.answer = answer
        self.calls: list[tuple[str, bytes]] = []

    def unary_unary(self, path: str) -> Callable[..., Awaitable[bytes]]:
        async def call(request: bytes, *, timeout: float) -> bytes:
            self.calls.append((path, request))
            if isinstance(self.answer, grpc.aio.AioRpcError):
                raise self.answer
            return self.answer

        return call


async def asked(method: str, *given: str, answer: bytes | grpc.aio.AioRpcError) -> tuple[Any, list[Any]]:
    """What came back, and the calls."""
    channel = Channel(answer)
    found = await getattr(PodResources(cast(grpc.aio.Channel, channel)), method)(*given)
    return found, channel.calls


async def test_all_pods() -> None:
    answer = api_pb2.ListPodResourcesResponse(pod_resources=[HELD]).SerializeToString()
    found = {("ns", "p"): ROWS}, [("/v1.PodResourcesLister/List", b"")]
    assert await asked("list_pods", answer=answer) == found


async def test_one_pod() -> None:
    answer = api_pb2.GetPodResourcesResponse(pod_resources=HELD).SerializeToString()
    request = api_pb2.GetPodResourcesRequest(pod_name="p", pod_namespace="ns").SerializeToString()
    assert await asked("get_pod", "ns", "p", answer=answer) == (ROWS, [("/v1.PodResourcesLister/Get", request)])


async def test_healthy_devices() -> None:
    nodes = api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=1)])
    listed = api_pb2.ContainerDevices(resource_name="example.com/gpu", device_ids=["a"], topology=nodes)
    answer = api_pb2.AllocatableResourcesResponse(devices=[listed]).SerializeToString()
    found = {"example.com/gpu": {"a": (1,)}}, [("/v1.PodResourcesLister/GetAllocatableResources", b"")]
    listed, calls = await asked("list_devices", answer=answer)
    assert (listed.devices, calls) == found


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNKNOWN, PodResourcesRefused),
        (grpc.StatusCode.UNIMPLEMENTED, PodResourcesRefused),
        (grpc.StatusCode.UNAVAILABLE, PodResourcesUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, PodResourcesUnavailable),
    ],
)
async def test_an_error_is_a_refusal_or_no_answer(code: grpc.StatusCode, kind: type[PodResourcesUnavailable]) -> None:
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="why")
    with pytest.raises(PodResourcesUnavailable) as raised:
        await asked("list_pods", answer=error)
    assert (type(raised.value), str(raised.value)) == (kind, f"{code.name}: why")


async def test_what_is_no_message_is_no_answer() -> None:
    with pytest.raises(PodResourcesUnavailable) as raised:
        await asked("list_pods", answer=b"\xff")
    assert str(raised.value) == "the response is not a message of the pod resources API"
