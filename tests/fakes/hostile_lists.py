"""A device plugin gone mad, in a process of its own: `python -m tests.fakes.hostile_lists DIR NAMES DEVICES`.

It serves so many names by a few sockets. Each has a list of so many devices, which changes as fast as it is read.
"""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.plugin_process import REGISTERED, plugins_process
from tests.robustness.fuzz.raw_plugin import register

_SERVICE = "v1beta1.DevicePlugin"
# an agent takes 64 connections of a socket, and those of a process that has ended may still be open
_NAMES_OF_A_SOCKET = 32


def resource_name(number: int) -> str:
    return f"mad.example.com/r{number:03}"


def hostile_lists(plugin_dir: Path, names: int, devices: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """So many names with so many devices each, registered; kill() ends them all at once."""
    return plugins_process("tests.fakes.hostile_lists", plugin_dir, names, devices)


def _lists(devices: int) -> Sequence[bytes]:
    """Two that differ in a device's health."""
    ids = [f"d{index}" for index in range(devices)]
    return [
        api_pb2.ListAndWatchResponse(
            devices=[api_pb2.Device(ID=each, health="Healthy" if each != broken else "Unhealthy") for each in ids]
        ).SerializeToString()
        for broken in (ids[0], ids[-1])
    ]


async def _serve(plugin_dir: Path, names: int, devices: int) -> None:
    servers = []
    handlers: dict[str, Any] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(_options),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(_Endless(_lists(devices)).send),
    }
    requests = []
    for first in range(0, names, _NAMES_OF_A_SOCKET):
        server, socket = grpc.aio.server(), f"mad-{os.getpid()}-{first}.sock"
        servers.append(server)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        server.add_insecure_port(f"unix:{plugin_dir / socket}")
        await server.start()
        for number in range(first, min(first + _NAMES_OF_A_SOCKET, names)):
            name = resource_name(number)
            requests.append(api_pb2.RegisterRequest(version="v1beta1", endpoint=socket, resource_name=name))
    await asyncio.gather(*(register(plugin_dir, request.SerializeToString()) for request in requests))
    print(REGISTERED, flush=True)
    await asyncio.Event().wait()


async def _options(request: bytes, context: Any) -> bytes:
    return b""


class _Endless:
    """As fast as they are read, which is all that gRPC's flow control lets through."""

    def __init__(self, lists: Sequence[bytes]) -> None:
        self._lists = lists

    async def send(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for octets in itertools.cycle(self._lists):
            yield octets


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), *map(int, sys.argv[2:4])))
