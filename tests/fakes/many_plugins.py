"""Device plugins by the hundred in one process, to be killed at once: `python -m tests.fakes.many_plugins DIR PLUGINS DEVICES`.

They register again, all at once, when the registration socket is another one, as plugins do that watch the directory.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.plugin_process import REGISTERED, plugins_process

# beside one more plugin, as many names as a node may have
MOST = 255
_POLL_SECONDS = 0.1


def resource_name(number: int) -> str:
    return f"many.example.com/r{number:03}"


def many_plugins(plugin_dir: Path, plugins: int, devices: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """So many plugins with so many devices each, registered; kill() ends them all at once."""
    return plugins_process("tests.fakes.many_plugins", plugin_dir, plugins, devices)


async def _serve(plugin_dir: Path, plugins: int, devices: int) -> None:
    listed = {f"device-{index:05}": FakeDevice() for index in range(devices)}
    found = [FakePlugin(resource_name(number), listed) for number in range(plugins)]
    for plugin in found:
        await plugin.join(plugin_dir)
    before = _identity(plugin_dir)
    print(REGISTERED, flush=True)
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        if (now := _identity(plugin_dir)) not in (None, before):
            before = now
            await asyncio.gather(*(plugin.register() for plugin in found), return_exceptions=True)


def _identity(plugin_dir: Path) -> tuple[int, int] | None:
    """Of the registration socket; None while there is none."""
    with contextlib.suppress(OSError):
        file = os.lstat(plugin_dir / "kubelet.sock")
        return file.st_ino, file.st_ctime_ns
    return None


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), *map(int, sys.argv[2:4])))
