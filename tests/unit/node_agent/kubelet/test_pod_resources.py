"""What becomes of the kubelet's response: an error is a refusal or no answer, and what is no message is no empty one."""

from collections.abc import Awaitable, Callable
from typing import cast

import grpc
import grpc.aio
import pytest
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused, PodResourcesUnavailable


async def list_pods(answer: bytes | grpc.StatusCode) -> object:
    class Channel:
        def unary_unary(self, path: str) -> Callable[..., Awaitable[bytes]]:
            return self._call

        async def _call(self, request: bytes, *, timeout: float) -> bytes:
            if isinstance(answer, bytes):
                return answer
            raise grpc.aio.AioRpcError(answer, grpc.aio.Metadata(), grpc.aio.Metadata(), details="why")

    return await PodResources(cast(grpc.aio.Channel, Channel())).list_pods()


@pytest.mark.parametrize(
    ("answer", "kind", "problem"),
    [
        (grpc.StatusCode.UNKNOWN, PodResourcesRefused, "UNKNOWN: why"),
        (grpc.StatusCode.UNIMPLEMENTED, PodResourcesRefused, "UNIMPLEMENTED: why"),
        (grpc.StatusCode.UNAVAILABLE, PodResourcesUnavailable, "UNAVAILABLE: why"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, PodResourcesUnavailable, "DEADLINE_EXCEEDED: why"),
        (b"\xff", PodResourcesUnavailable, "the response is not a message of the pod resources API"),
    ],
)
async def test_what_is_no_answer(
    answer: bytes | grpc.StatusCode, kind: type[PodResourcesUnavailable], problem: str
) -> None:
    with pytest.raises(PodResourcesUnavailable) as raised:
        await list_pods(answer)
    assert (type(raised.value), str(raised.value)) == (kind, problem)
