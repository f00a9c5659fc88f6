"""A node with fake GPUs: the nvml plugin on the fake NVML, and our device manager behind its socket."""

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.snapshot import DeviceView, Snapshot, snapshot
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings

from hack.fake_nvml.library import FakeNvml
from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted

GPU = "nvidia.com/gpu"
QUICK = {"pollSeconds": 1, "callSeconds": 0.5, "rescanSeconds": 1}


class Node:
    """A node with this machine's GPUs, its plugin and its device manager."""

    def __init__(self, folder: Path, gpus: FakeNvml, manager: HostedManager) -> None:
        self.folder, self.gpus, self.manager = folder, gpus, manager

    def resource(self, name: str = GPU) -> Snapshot | None:
        known = self.manager.manager.resources
        return snapshot(self.manager.manager, name) if name in known and known[name].is_live else None

    def device(self, place: int) -> DeviceView:
        """The device at this position, in order of the first list."""
        resource = self.resource()
        assert resource is not None
        return next(device for device in resource.devices if device.id == self.uuids[place])

    @property
    def uuids(self) -> list[str]:
        lines = self.gpus.description.read_text().splitlines()
        words = [word for line in lines if line.startswith("gpu ") for word in line.split()]
        return [word.removeprefix("uuid=") for word in words if word.startswith("uuid=")]

    async def until(self, holds: Callable[[Snapshot], bool], name: str = GPU) -> Snapshot:
        def is_so() -> bool:
            found = self.resource(name)
            return found is not None and holds(found)

        await self.manager.until(is_so)
        found = self.resource(name)
        assert found is not None
        return found

    async def until_unhealthy(self, reasons: dict[int, str]) -> None:
        """Wait until exactly these GPUs, by position, have these reasons."""
        wanted = {self.uuids[place]: reason for place, reason in reasons.items()}
        await self.until(lambda r: {d.id: d.reason for d in r.devices if not d.healthy} == wanted)

    def reader_pids(self) -> list[int]:
        """The plugin's reader processes: one, and its successor during a rescan."""
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return [int(c) for c in children if b"nvml.reader" in Path(f"/proc/{c}/cmdline").read_bytes()]

    def reader_pid(self) -> int:
        (pid,) = self.reader_pids()
        return pid


@asynccontextmanager
async def node(
    folder: Path,
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
    before: Iterable[str | bytes] = (),
    records_calls: bool = False,
    **settings: Any,
) -> AsyncIterator[Node]:
    """before: statements of what happens to the machine before the plugin starts. settings: of the plugin."""
    gpus = FakeNvml(folder / "nvml", machine)
    gpus.write(*before)
    for name, value in gpus.environment(records_calls=records_calls).items():
        monkeypatch.setenv(name, value)
    async with hosted(folder) as manager, plugins(folder, **settings):
        yield Node(folder, gpus, manager)


@asynccontextmanager
async def plugins(folder: Path, **settings: Any) -> AsyncIterator[None]:
    """The built-in plugins of a host without device files, unless they were made before."""
    (folder / "host/dev").mkdir(parents=True, exist_ok=True)
    raw = {"hostRoot": str(folder / "host"), "nvml": {**QUICK, **settings}}
    runner = PluginRunner(folder / "plugins", folder / "state")
    runner.apply(msgspec.convert(raw, PluginSettings))
    async with background(runner.run()):
        yield
