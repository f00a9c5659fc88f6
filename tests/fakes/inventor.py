"""A device plugin that registers ever new names, as a process: `python -m tests.fakes.inventor DIR NAMES`, killed at its end.

All names are served by one process on a few sockets, as the agent takes no more than 64 connections of one. Of half of them the
streams end at once, as if the plugin were started again and again. Each fourth name has a domain of its own. A line for each batch:
how many were tried, and how many were taken.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from tests.fakes.plugin import FakeDevice, FakePlugin

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import RegistrationAsyncStub

DOMAIN = "invented.example.com"
_SOCKETS = 8
_AT_ONCE = 16
_BATCH = 500
_OVER = "over"


def invented(number: int) -> str:
    domain = DOMAIN if number % 4 else f"d{number}.{DOMAIN}"
    return f"{domain}/r{number}"


@contextlib.contextmanager
def inventor(plugin_dir: Path, names: int) -> Iterator["Inventor"]:
    command = [sys.executable, "-m", "tests.fakes.inventor", str(plugin_dir), str(names)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True) as process:
        try:
            yield Inventor(process)
        finally:
            process.kill()


class Inventor:
    """process: serves its names until it is killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.tried = self.taken = 0

    def is_over(self) -> bool:
        """Wait for the next batch; whether it was the last one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line, "the plugin has ended"
        if line[0] == _OVER:
            return True
        self.tried, self.taken = int(line[0]), int(line[1])
        return False


async def _serve(plugin_dir: Path, names: int) -> None:
    listed = {"d0": FakeDevice()}
    plugins = [FakePlugin(f"{DOMAIN}/socket-{number}", listed) for number in range(_SOCKETS)]
    for number, plugin in enumerate(plugins):
        # of half of them no connection is left
        plugin.knobs.stream_end = "after_first" if number % 2 else "never"
        await plugin.start(plugin_dir)
    sockets = [plugin.socket_name for plugin in plugins]
    numbers = iter(range(names))
    taken = 0

    async def register(stub: "RegistrationAsyncStub") -> None:
        nonlocal taken
        for number in numbers:
            request = api_pb2.RegisterRequest(
                version="v1beta1", endpoint=sockets[number // 40 % len(sockets)], resource_name=invented(number)
            )
            with contextlib.suppress(grpc.RpcError):
                await stub.Register(request, timeout=60)
                taken += 1
            if number % _BATCH == 0:
                print(number, taken, flush=True)

    options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"unix:{plugin_dir / 'kubelet.sock'}", options=options) as channel:
        stub = cast("RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
        await asyncio.gather(*(register(stub) for _ in range(_AT_ONCE)))
    print(names, taken, flush=True)
    print(_OVER, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
