"""A restart of the agent with connected plugins: it reconnects to them, stale sockets are removed, no device flaps."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.allocation import pod_allocation
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.checkpoint import PluginSocket
from nodedevice_agent.devicemanager.resources import resource_table

from tests.fakes.hosted_manager import PATIENCE_SECONDS, HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.deadlines import long_deadlines as long_deadlines

RESOURCE = "example.com/fake"
POD = Pod("uid-1", "default", "train", (Container("main", limits={RESOURCE: 1}),))
pytestmark = pytest.mark.usefixtures("long_deadlines")


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    """One that never registers by itself; to be started once the agent has cleared the directory."""
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice(), "b": FakeDevice()})
    yield plugin
    await plugin.stop()


def sockets(folder: Path) -> tuple[PluginSocket, ...]:
    checkpoint = checkpoint_file.read(folder)
    assert checkpoint is not None
    return checkpoint.sockets


def is_available(manager: HostedManager, count: int) -> bool:
    return manager.available(RESOURCE) == count


@pytest.mark.kubelet("weak spot 9")
async def test_a_plugin_that_never_registers_again_survives_every_restart(tmp_path: Path, plugin: FakePlugin) -> None:
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
    assert plugin.socket_path.is_socket()
    for _ in range(3):
        await plugin.wait_for_streams(0)
        async with hosted(tmp_path, [POD]) as manager:
            await manager.until(lambda: is_available(manager, 1))
            assert not plugin.socket_path.exists()
            # the connection is a whole one: health comes over it, and Allocate goes
            await plugin.set_health("b", healthy=False)
            await manager.until(lambda: is_available(manager, 0))
            await plugin.set_health("b", healthy=True)
            await manager.until(lambda: is_available(manager, 1))
            assert [a.device_ids for a in manager.manager.book] == [("a",)]
    assert len(plugin.calls_of("Allocate")) == 1


@pytest.mark.kubelet("behaviour 2")
async def test_a_plugin_with_a_removed_socket_reregisters_without_a_flap(
    tmp_path: Path, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    # for so long after a restart the last numbers stay
    monkeypatch.setattr(resource_table, "SETTLE_SECONDS", 3600.0)
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
    async with hosted(tmp_path) as manager:
        await plugin.wait_for_streams(1)
        assert not plugin.socket_path.exists()
        # what such a plugin does then; one device more distinguishes its new list from the old one
        await plugin.stop()
        plugin.devices = {**plugin.devices, "c": FakeDevice()}
        await plugin.join(manager.plugin_dir)
        await manager.until(lambda: is_available(manager, 3))
        assert {seen.available for seen in manager.published} <= {2, 3}
    # the end of the former connection may be noticed too late; a socket that is not served is skipped
    assert PluginSocket(RESOURCE, plugin.socket_name) in sockets(tmp_path)


@pytest.mark.kubelet("scenario 41", "weak spot 8")
async def test_only_one_connection_is_left_when_a_plugin_registers_again(tmp_path: Path, plugin: FakePlugin) -> None:
    async with hosted(tmp_path) as manager:
        await plugin.join(manager.plugin_dir)
        await plugin.wait_for_streams(1)
        await plugin.register()
        await plugin.wait_for_calls("ListAndWatch", 2)
        await plugin.wait_for_streams(1)
        assert is_available(manager, 2)
        await plugin.stop()
        # the one that was replaced holds nothing alive
        await manager.until(lambda: is_available(manager, 0))
    assert sockets(tmp_path) == ()


async def test_a_call_in_flight_when_its_connection_is_replaced_is_made_again(
    tmp_path: Path, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart: the plugin is dialled, asked at once, and registers again before it has answered."""
    monkeypatch.setattr(pod_allocation, "FIRST_RETRY_SECONDS", 0.01)
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
    gate = plugin.knobs.allocate_gate = asyncio.Event()
    async with hosted(tmp_path, [POD]) as manager:
        await plugin.wait_for_calls("Allocate")
        await plugin.register()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await plugin.wait_for_calls("Allocate", 2)
        gate.set()
        await manager.until(lambda: [a.device_ids for a in manager.manager.book] == [("a",)])
