"""A boot after which a GPU is missing and the others have other numbers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.lib import filesystem
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import NvmlSource
from nodedevice_agent.plugins.nvml.watch import GpuWatch

from hack.fake_nvml.library import MACHINES, FakeNvml
from tests.fakes.background import background

Devices = Mapping[str, PluginDevice]
_SETTINGS = {"handOver": ["env", "deviceNodes"], "pollSeconds": 1, "rescanSeconds": 1}


class Machine:
    """A host with device files whose driver numbers the GPUs that it finds. It boots without what has fallen off the bus."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._text = (MACHINES / f"{name}.machine").read_text()
        self._environment = monkeypatch
        (folder / "host/dev").mkdir(parents=True)
        for minor in range(self._text.count("\ngpu ")):
            (folder / f"host/dev/nvidia{minor}").symlink_to("/dev/null")
        for name in ("nvidiactl", "nvidia-uvm"):
            (folder / f"host/dev/{name}").symlink_to("/dev/null")
        monkeypatch.setattr(filesystem, "BOOT_ID", folder / "boot_id")

    @property
    def uuids(self) -> list[str]:
        words = (word for line in self._text.splitlines() if line.startswith("gpu ") for word in line.split())
        return [word.removeprefix("uuid=") for word in words if word.startswith("uuid=GPU-")]

    def without_first(self) -> None:
        lines = [line for line in self._text.splitlines() if self.uuids[0] not in line]
        self._text = "\n".join([*lines, ""])

    def boot(self, boot_id: str) -> None:
        (self.folder / "boot_id").write_text(boot_id)
        description = self.folder / "booted.machine"
        description.write_text(self._text)
        gpus = FakeNvml(self.folder / "nvml", description)
        for name, value in gpus.environment().items():
            self._environment.setenv(name, value)

    @asynccontextmanager
    async def plugin(self) -> AsyncIterator[NvmlSource]:
        with FileWatcher() as files:
            settings = msgspec.convert(_SETTINGS, NvmlSettings)
            watch = GpuWatch(settings, str(self.folder / "host"), self.folder / "state", files)
            async with background(watch.run()):
                async with asyncio.timeout(60):
                    source = await watch.wanted.get()
                yield source


async def until(source: NvmlSource, holds: Callable[[Devices], bool]) -> Devices:
    async with asyncio.timeout(60):
        async for listed in source.devices.watch():
            devices = {device.id: device for device in listed}
            if holds(devices):
                return devices
    raise AssertionError


def is_healthy(count: int) -> Callable[[Devices], bool]:
    return lambda devices: sum(device.is_healthy for device in devices.values()) == count


async def test_after_a_boot_each_gpu_has_its_new_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "dgx-h100", monkeypatch)
    uuids = machine.uuids
    machine.boot("first")
    async with machine.plugin() as source:
        devices = await until(source, is_healthy(8))
    assert [devices[uuid].identity for uuid in uuids] == [
        (uuid, f"path:/dev/nvidia{minor}") for minor, uuid in enumerate(uuids)
    ]
    machine.without_first()
    machine.boot("second")
    async with machine.plugin() as source:
        devices = await until(source, is_healthy(7))
        assert sorted(devices) == sorted(uuids[1:])
        for minor, uuid in enumerate(uuids[1:]):
            path = f"/dev/nvidia{minor}"
            assert devices[uuid].identity == (uuid, f"path:{path}")
            assert devices[uuid].files == ((path, f"path:{path}"),)
            assert [node.host_path for node in source.allocate([uuid], None).device_nodes][:1] == [path]
