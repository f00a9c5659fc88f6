"""The fake plugin as a process, to be killed: `python -m tests.fakes.plugin_process --plugin-dir D --resource R --count N`.

It registers again when its own socket vanishes, as many plugins in use do, and prints `registered` each time.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
from inotify_simple import INotify, flags

from tests.fakes.plugin import FakeDevice, FakePlugin

REGISTERED: Final = "registered"


@contextlib.asynccontextmanager
async def plugin_process(plugin_dir: Path, resource_name: str, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, until the block ends: it lives apart from the agent and the test."""
    options = ["--plugin-dir", str(plugin_dir), "--resource", resource_name, "--count", str(count)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.plugin_process", *options),
        cwd=Path(__file__).parents[2],
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.contextmanager
def plugins_process(module: str, plugin_dir: Path, *numbers: int) -> Iterator[subprocess.Popen[bytes]]:
    """Plugins of another module here, once it has printed REGISTERED; kill() ends them all at once."""
    command = [sys.executable, "-m", module, str(plugin_dir), *map(str, numbers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode().strip() == REGISTERED
            yield process
        finally:
            process.kill()


async def run_until_stopped(plugin: FakePlugin, plugin_dir: Path) -> None:
    """Serve and register, and do both again whenever the socket vanishes; until cancelled."""
    events: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with INotify(nonblocking=True) as inotify:
        inotify.add_watch(plugin_dir, flags.CREATE | flags.DELETE | flags.MOVED_TO)

        def forward() -> None:
            for event in inotify.read(timeout=0):
                if event.mask & flags.DELETE or event.name == "kubelet.sock":
                    events.put_nowait(event.name)

        loop.add_reader(inotify.fileno(), forward)
        try:
            while True:
                await plugin.start(plugin_dir)
                await _serve_until_socket_vanishes(plugin, events)
                await plugin.stop()
        finally:
            loop.remove_reader(inotify.fileno())
            await plugin.stop()


async def _serve_until_socket_vanishes(plugin: FakePlugin, events: asyncio.Queue[str]) -> None:
    is_registered = await _registered(plugin)
    while plugin.socket_path.exists():
        # a manager may be seen before it listens, and that it does is no event of the directory: ask it again
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(events.get(), None if is_registered else 0.5)
        if not is_registered:
            is_registered = await _registered(plugin)


async def _registered(plugin: FakePlugin) -> bool:
    try:
        await plugin.register()
    except grpc.aio.AioRpcError as error:
        print(f"not registered: {error.code().name} {error.details()}", file=sys.stderr, flush=True)
        return False
    print(REGISTERED, flush=True)
    return True


async def main() -> None:
    """The fake as a process; ends on SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A device plugin for tests.")
    parser.add_argument("--plugin-dir", type=Path, required=True, help="where kubelet.sock is or will be")
    parser.add_argument("--resource", default="example.com/fake", help="resource name to register")
    parser.add_argument("--count", type=int, default=2, help="how many devices, named dev-0 and on")
    arguments = parser.parse_args()
    plugin = FakePlugin(arguments.resource, {f"dev-{index}": FakeDevice() for index in range(arguments.count)})
    serving = asyncio.ensure_future(run_until_stopped(plugin, arguments.plugin_dir))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


if __name__ == "__main__":
    asyncio.run(main())
