"""Through NRI, in process: the host's files of a device that a container has get other numbers or names."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.plugins.generic import source as generic_source
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime import device_numbers
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2 as plugin_pb2

from tests.fakes.hosted_manager import PATIENCE_SECONDS
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.plugin import FakePlugin
from tests.fakes.sysfs import FakeSysfs
from tests.integration.agent.injecting_agent import POD, RESOURCE, agent, holders, made, sandbox, with_pod


async def test_a_device_that_is_back_under_another_number(
    tmp_path: Path, plugin: FakePlugin, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime shows the number that a running container has; what the host's file has by now decides."""
    monkeypatch.setattr(device_numbers, "_SETTLE_SECONDS", 0.0)
    port = tmp_path / "port"
    port.symlink_to("/dev/null")
    device = plugin_pb2.DeviceSpec(container_path="/dev/port", host_path=str(port), permissions="rw")
    plugin.knobs.allocate_answer = lambda _: plugin_pb2.ContainerAllocateResponse(devices=[device])
    async with agent(tmp_path) as (manager, backend):
        await manager.register(plugin)
        await with_pod(manager)
        connection = await runtime.plugin()

        def reason() -> str:
            condition = backend.injectable(snapshot(manager.manager, RESOURCE, backend.not_injected))
            return condition[1] if condition is not None else ""

        def is_renumbered() -> bool:
            # as the publisher does when the list of devices has changed
            backend.resource_changed(RESOURCE)
            return reason() == "DevicesRenumbered"

        adjusted = await connection.create_container(sandbox(), made())
        running = made()
        running.annotations.update(adjusted.annotations)
        running.linux.devices.extend(adjusted.linux.devices)
        await connection.container_event("PostStartContainer", sandbox(), running)
        port.unlink()
        assert not is_renumbered()
        port.symlink_to("/dev/zero")
        await wait_until(is_renumbered)
        await connection.container_event("StopContainer", sandbox(), running)
        await wait_until(lambda: not is_renumbered())
        adjusted = await connection.create_container(sandbox(), made(number=2))
        assert [(d.path, d.major, d.minor) for d in adjusted.linux.devices] == [("/dev/port", 1, 5)]


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
    async with agent(tmp_path) as (manager, _):
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
