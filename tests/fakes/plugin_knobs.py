"""How the fake plugin can be told to misbehave, and what it answers to Allocate unless it is."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import grpc
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

StreamEnd = Literal["never", "at_once", "after_first"]


@dataclass(frozen=True)
class RpcFailure:
    """An RPC to be refused with this status."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    details: str = "told to fail"


@dataclass
class Knobs:
    """How the fake misbehaves; each may be turned at any time and holds from the next call on."""

    allocate_error: RpcFailure | None = None
    allocate_delay_seconds: float = 0.0
    # Set to an Event: Allocate waits until the test sets it (or for ever).
    allocate_gate: asyncio.Event | None = None
    # An answer without any container response.
    allocate_empty: bool = False
    # What to answer instead of the default; gets the device IDs.
    allocate_answer: Callable[[Sequence[str]], api_pb2.ContainerAllocateResponse] | None = None
    preferred_error: RpcFailure | None = None
    preferred_gate: asyncio.Event | None = None
    # IDs to answer whatever was asked: unknown ones, too few, not available.
    preferred_answer: Sequence[str] | None = None
    preferred_empty: bool = False
    pre_start_error: RpcFailure | None = None
    pre_start_gate: asyncio.Event | None = None
    options_error: RpcFailure | None = None
    options_gate: asyncio.Event | None = None
    # How ListAndWatch ends by itself, and with which error if any.
    stream_end: StreamEnd = "never"
    stream_error: RpcFailure | None = None
    # A list to send as it is, for IDs that occur twice, are empty or absurd.
    raw_list: list[api_pb2.Device] | None = None


def default_answer(device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
    """One of everything a plugin can answer, for each device, in the order asked."""
    return api_pb2.ContainerAllocateResponse(
        envs={"FAKE_DEVICES": ",".join(device_ids)},
        annotations={"fake.example.com/devices": ",".join(device_ids)},
        mounts=[
            api_pb2.Mount(container_path=f"/fake/{name}", host_path=f"/tmp/{name}", read_only=True)
            for name in device_ids
        ],
        devices=[
            api_pb2.DeviceSpec(container_path=f"/dev/{name}", host_path="/dev/null", permissions="rw")
            for name in device_ids
        ],
    )
