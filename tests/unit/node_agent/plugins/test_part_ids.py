"""IDs of parts and shares are `<parent>::<n>`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin.codec import device_list
from nodedevice_agent.lib.deviceplugin_server.server import DeviceSource, list_to_wire
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.source import NvmlSource
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.unit.node_agent.plugins.nvml.sources import Served

GPU = Gpu("GPU-a", "Tesla T4", 15 << 30, index=0)
OTHER = Gpu("GPU-b", "Tesla T4", 15 << 30, index=1)
PARTS = {"placement": "same-parent"}


def shared_gpus(folder: Path, rule: dict[str, Any]) -> NvmlSource:
    return Served(folder, GPU, OTHER, sharing=[rule], handOver=["env"]).source


def device_files(folder: Path, parts: dict[str, str] | None) -> GenericSource:
    (folder / "dev").mkdir()
    for name, file in {"a": "/dev/tty", "b": "/dev/null"}.items():
        (folder / "dev" / name).symlink_to(file)
    raw = {"resourceName": "a.b/c", "groups": [{"paths": [{"path": "/dev/[ab]"}], "count": 3}], "parts": parts}
    source = GenericSource(msgspec.convert(raw, GenericSettings), str(folder), FileWatcher())
    source.refresh()
    return source


def simulated(folder: Path) -> SimulatedSource:
    raw = {"resourceName": "a.b/c", "count": 2, "partsPerDevice": 3}
    source = SimulatedSource(msgspec.convert(raw, SimulatedSettings), folder, FileWatcher())
    asyncio.run(source.read())
    return source


SOURCES: dict[str, Callable[[Path], DeviceSource]] = {
    "shares of GPUs": lambda folder: shared_gpus(folder, {"shares": {"replicas": 3}}),
    "units of GPUs": lambda folder: shared_gpus(folder, {"memory": {"unit": "4Gi"}}),
    "shares of device files": lambda folder: device_files(folder, None),
    "parts of device files": lambda folder: device_files(folder, PARTS),
    "parts of simulated devices": simulated,
}


def seen_by_the_device_manager(source: DeviceSource) -> ListedDevices:
    listed = list_to_wire(source.devices.latest, *source.devices.trouble, source.devices.part_rules)
    return device_list(listed.SerializeToString(), is_built_in=True)


@pytest.mark.parametrize("kind", SOURCES)
def test_the_parent_stands_before_two_colons(tmp_path: Path, kind: str) -> None:
    listed = seen_by_the_device_manager(SOURCES[kind](tmp_path))
    assert not listed.id_error
    parents = {device_id.partition("::")[0] for device_id in listed.ids}
    assert len(parents) == 2
    assert {f"{parent}::{number}" for parent in parents for number in range(3)} == {*listed.ids}
