"""Monitors that ask the PodResources service with any bytes: refused or answered, and whoever asks well gets an answer."""

import asyncio
import contextlib
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.podresources.server import PodResourcesServer
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import nearly

_GET = api_pb2.GetPodResourcesRequest(pod_name="train", pod_namespace="default").SerializeToString()
_CALLS = ["/v1.PodResourcesLister/Get", "/v1.PodResourcesLister/List", "/v1.PodResourcesLister/GetAllocatableResources"]
_CALLS += ["/v1alpha1.PodResourcesLister/List", "/v1.PodResourcesLister/Nothing"]


async def serve(path: Path) -> PodResourcesServer:
    manager = DeviceManager(0.0)
    manager.pod_events.seen(Pod("uid-1", "default", "train", (Container("main"),)), 0.0)
    # a clock that jumps, so that the limit of calls a second is never met
    hours = count(0, 3600)
    server = PodResourcesServer(path, manager, are_pods_known=lambda: True, clock=lambda: float(next(hours)))
    await server.start()
    return server


async def ask(path: Path, call: str, request: bytes) -> None:
    options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
        odd: Any = channel.unary_unary(call)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await odd(request, timeout=60)
        good: Any = channel.unary_unary(_CALLS[0], response_deserializer=api_pb2.GetPodResourcesResponse.FromString)
        answer = await good(_GET, timeout=60)
    assert answer.pod_resources.name == "train"


def test_any_request(fuzz: Fuzzer, runner: asyncio.Runner, tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    server = runner.run(serve(path))
    try:
        inputs = st.tuples(st.sampled_from(_CALLS), nearly([_GET, b""]))
        fuzz(lambda value: runner.run(ask(path, *value)), inputs)
    finally:
        runner.run(server.stop())
