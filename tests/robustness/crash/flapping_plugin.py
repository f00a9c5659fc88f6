"""A device plugin as a process, whose devices break, recover, vanish and come back all the time.

`python -m ….flapping_plugin DIR RESOURCE DEVICES SEED`. On SIGUSR1 it stops: every device is
listed and healthy from then on.
"""

import asyncio
import contextlib
import random
import signal
import sys
from pathlib import Path

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.plugin_process import run_until_stopped

_PAUSE_SECONDS = (0.03, 0.3)


def all_healthy(count: int) -> dict[str, FakeDevice]:
    return {f"dev-{index}": FakeDevice() for index in range(count)}


def flapped(count: int, chance: random.Random) -> dict[str, FakeDevice]:
    """Each device: mostly healthy, sometimes unhealthy, sometimes not listed."""
    devices = {}
    for device_id in all_healthy(count):
        fate = chance.random()
        if fate > 0.05:
            devices[device_id] = FakeDevice(healthy=fate > 0.2)
    return devices


async def flap(plugin: FakePlugin, count: int, chance: random.Random, calm: asyncio.Event) -> None:
    while not calm.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(calm.wait(), chance.uniform(*_PAUSE_SECONDS))
        await plugin.update(flapped(count, chance))
        # nothing here reads it, and it would grow without bound
        plugin.calls.clear()
    await plugin.update(all_healthy(count))


async def main(plugin_dir: Path, resource: str, count: int, seed: int) -> None:
    calm = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, calm.set)
    plugin = FakePlugin(resource, all_healthy(count))
    async with asyncio.TaskGroup() as group:
        group.create_task(run_until_stopped(plugin, plugin_dir))
        group.create_task(flap(plugin, count, random.Random(seed), calm))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])))
