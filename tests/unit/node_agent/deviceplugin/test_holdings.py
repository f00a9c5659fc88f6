"""A plugin gets the holdings of its resource: a fake one on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.deviceplugin import holdings as sender

from tests.fakes.hosted_manager import HostedManager, hosted, pod, running
from tests.fakes.plugin import Call, FakeDevice, FakePlugin, RpcFailure
from tests.unit.node_agent.deviceplugin.conftest import Start

GPU = "example.com/gpu"
OTHER = "example.com/other"


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(sender, "_LONGEST_RETRY_SECONDS", 0.01)


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(GPU, {"d0": FakeDevice(), "d1": FakeDevice()}, holdings_required=True)
    yield plugin
    await plugin.stop()


async def syncs(plugin: FakePlugin, count: int) -> list[tuple[str, ...]]:
    """`uid/container` of the holdings of each Sync, once there were so many."""
    found: list[Call] = await plugin.wait_for_calls("Sync", count)
    return [call.device_ids for call in found]


async def allocated(manager: HostedManager, uid: str, resource_name: str = GPU) -> None:
    manager.pod_seen(pod(uid, resource_name, 1))
    await manager.until(lambda: uid in manager.manager.book.by_pod)


async def test_once_after_it_has_connected_and_when_a_holding_has_ended(
    manager: HostedManager, plugin: FakePlugin
) -> None:
    await manager.register(plugin)
    await syncs(plugin, 1)
    await allocated(manager, "p")
    await allocated(manager, "q")
    manager.pod_gone("p")
    assert await syncs(plugin, 2) == [(), ("q/c0",)]
    (sent,) = plugin.calls_of("Sync")[1].request.holdings
    assert (list(sent.device_ids), sent.response[:1] != b"") == (["d1"], True)
    await plugin.register()
    assert (await syncs(plugin, 3))[2] == ("q/c0",)


async def test_the_newest_holdings_are_sent_after_a_failure(manager: HostedManager, plugin: FakePlugin) -> None:
    plugin.knobs.sync_error = RpcFailure()
    await manager.register(plugin)
    await syncs(plugin, 2)
    await allocated(manager, "p")
    plugin.knobs.sync_error = None
    count = len(plugin.calls_of("Sync"))
    assert ("p/c0",) in (await syncs(plugin, count + 1))[count:]


async def test_allocate_waits_for_a_call_in_flight(manager: HostedManager, plugin: FakePlugin, join: Start) -> None:
    """Else the plugin could remove what it has just made, for a container that the holdings do not include yet."""
    gate = plugin.knobs.sync_gate = asyncio.Event()
    await manager.register(plugin)
    await join(OTHER, "d0", "d1", "d2")
    await syncs(plugin, 1)
    manager.pod_seen(pod("p", GPU, 1))
    # later calls to another plugin take as long, and are not delayed
    for number in range(3):
        await allocated(manager, f"other-{number}", OTHER)
    assert plugin.calls_of("Allocate") == []
    gate.set()
    await plugin.wait_for_calls("Allocate")
    await manager.until(lambda: "p" in manager.manager.book.by_pod)
    assert await syncs(plugin, 1) == [()]


async def test_nothing_before_the_pods_of_a_restart_are_known(tmp_path: Path, plugin: FakePlugin) -> None:
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
        await allocated(manager, "p")
        await manager.host.saved()
    before = len(plugin.calls_of("Sync"))
    found = HostedManager(tmp_path)
    async with running(found):
        await plugin.wait_for_streams(1)
        await plugin.resend()
        await found.until(lambda: found.manager.resources[GPU].is_live)
        assert len(plugin.calls_of("Sync")) == before
        found.pods(pod("p", GPU, 1))
        assert (await syncs(plugin, before + 1))[before:] == [("p/c0",)]


async def test_not_to_a_plugin_that_does_not_require_it(manager: HostedManager, join: Start) -> None:
    plain = await join(GPU)
    await allocated(manager, "p")
    manager.pod_gone("p")
    await manager.until(lambda: manager.available(GPU) == 1)
    assert plain.calls_of("Sync") == []
