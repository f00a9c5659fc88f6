"""Device plugins by the hundred in one process, to be killed at once: `python -m tests.fakes.many_plugins DIR PLUGINS DEVICES`."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.plugin import FakeDevice, FakePlugin

# beside one more plugin, as many connections as an agent accepts
MOST = 255
_REGISTERED = "registered"


def resource_name(number: int) -> str:
    return f"many.example.com/r{number:03}"


@contextlib.contextmanager
def many_plugins(plugin_dir: Path, plugins: int, devices: int) -> Iterator[subprocess.Popen[bytes]]:
    """So many plugins with so many devices each, registered; kill() ends them all at once."""
    command = [sys.executable, "-m", "tests.fakes.many_plugins", str(plugin_dir), str(plugins), str(devices)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode().strip() == _REGISTERED
            yield process
        finally:
            process.kill()


async def _serve(plugin_dir: Path, plugins: int, devices: int) -> None:
    listed = {f"device-{index:05}": FakeDevice() for index in range(devices)}
    for number in range(plugins):
        await FakePlugin(resource_name(number), listed).join(plugin_dir)
    print(_REGISTERED, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), *map(int, sys.argv[2:4])))
