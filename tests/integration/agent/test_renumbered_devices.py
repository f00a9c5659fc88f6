"""Through NRI, in process: the host's files of a device that a container has get other numbers or names."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.plugins.generic import source as generic_source
from nodedevice_agent.plugins.settings import PluginSettings

from tests.fakes.hosted_manager import PATIENCE_SECONDS
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.sysfs import FakeSysfs
from tests.integration.agent.injecting_agent import POD, RESOURCE, agent, holders


async def test_selected_devices_that_exchange_names(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built-in plugin is asked again for the files of a device that a pod holds."""
    # no event of this kernel's is about the files
    monkeypatch.setattr(generic_source, "_RESCAN_SECONDS", 0.1)
    host = FakeSysfs(tmp_path / "host")
    numbers = {"AAA": 0, "BBB": 1}
    for port, (serial, number) in enumerate(numbers.items(), 1):
        host.dongle(f"1-{port}", number, serial)
    groups = [{"select": {"usb": {"vendor": "0403"}, "subsystems": ["tty"]}}]
    plugins = {"hostRoot": str(host.root), "generic": [{"resourceName": RESOURCE, "groups": groups}]}
    async with agent(tmp_path) as manager:
        manager.configure(msgspec.convert(plugins, PluginSettings))
        await wait_until(lambda: manager.available(RESOURCE) == 2)
        manager.pods(POD)

        def given() -> list[str]:
            found = manager.manager.book.of(POD.uid, "main", RESOURCE)
            return [d.host_path for d in found.edits.devices] if found is not None and found.edits else []

        await wait_until(lambda: bool(given()))
        (held,) = holders(manager)
        serial = held.rpartition("-")[2]
        assert given() == [f"/dev/ttyUSB{numbers[serial]}"]
        for port in (1, 2):
            host.unplug(f"1-{port}")
        await wait_until(lambda: manager.available(RESOURCE) == 0)
        for port, (other, number) in enumerate(numbers.items(), 1):
            host.dongle(f"1-{port}", 1 - number, other)
        await wait_until(lambda: given() == [f"/dev/ttyUSB{1 - numbers[serial]}"])
        assert holders(manager) == {held: POD.uid}


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)
