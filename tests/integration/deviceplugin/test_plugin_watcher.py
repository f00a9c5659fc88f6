"""Plugins that announce themselves by a socket in the plugins registry directory, on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.registrant import Registrant

RESOURCE = "example.com/fake"
Serve = Callable[[Registrant], Awaitable[Registrant]]


def a_plugin(*device_ids: str, resource_name: str = RESOURCE) -> FakePlugin:
    return FakePlugin(resource_name, {device_id: FakeDevice() for device_id in device_ids})


def watching(manager: HostedManager, registry: Path) -> AbstractAsyncContextManager[None]:
    return background(PluginWatcher(registry, manager.host).run())


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "registry"
    path.mkdir()
    return path


@pytest.fixture
async def manager(tmp_path: Path, registry: Path) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path) as manager, watching(manager, registry):
        yield manager


@pytest.fixture
async def serving() -> AsyncIterator[Serve]:
    """Starts a registrant, which is stopped with the test."""
    async with AsyncExitStack() as started:

        async def serving(registrant: Registrant) -> Registrant:
            await registrant.start()
            started.push_async_callback(registrant.stop)
            return registrant

        yield serving


@pytest.mark.kubelet("behaviour 11", "scenario 64", "scenario 68")
async def test_sockets_register_and_deregister(manager: HostedManager, registry: Path, serving: Serve) -> None:
    registrant = await serving(Registrant(registry / "fake.sock", a_plugin("a", "b")))
    await manager.until(lambda: manager.available(RESOURCE) == 2)
    await registrant.until_accepted()
    # the plugin continues to serve: its registration depends on the socket alone
    registrant.path.unlink()
    await manager.until(lambda: manager.available(RESOURCE) == 0)
    await registrant.plugin.wait_for_streams(0)


@pytest.mark.kubelet("scenario 3", "scenario 67")
async def test_sockets_that_were_there_before_and_in_folders_are_found(tmp_path: Path, registry: Path) -> None:
    early = Registrant(registry / "early.sock", a_plugin("a"))
    deep = Registrant(registry / "vendor" / "deep" / "reg.sock", a_plugin("b", resource_name="example.com/deep"))
    late = Registrant(registry / "made" / "later" / "reg.sock", a_plugin("c", resource_name="example.com/late"))
    await early.start()
    await deep.start()
    async with hosted(tmp_path) as manager, watching(manager, registry):
        await manager.until(lambda: manager.available(RESOURCE) == 1 and manager.available("example.com/deep") == 1)
        await late.start()
        await manager.until(lambda: manager.available("example.com/late") == 1)
    for registrant in (early, deep, late):
        await registrant.stop()


@pytest.mark.kubelet("scenario 5", "scenario 66")
async def test_recreating_a_socket_leaves_no_gap(manager: HostedManager, registry: Path, serving: Serve) -> None:
    old = await serving(Registrant(registry / "fake.sock", a_plugin("a", "b")))
    await manager.until(lambda: manager.available(RESOURCE) == 2)
    manager.published.clear()
    new = Registrant(registry / "new", a_plugin("a", "b", "c"))
    new.path = registry / ".hidden"
    await serving(new)
    new.path = new.path.rename(registry / "fake.sock")
    await manager.until(lambda: manager.available(RESOURCE) == 3)
    await new.until(lambda: new.statuses == [""])
    await old.plugin.wait_for_streams(0)
    assert {seen.available for seen in manager.published} <= {2, 3}
    assert old.asked == 1
    await new.stop()
    await manager.until(lambda: manager.available(RESOURCE) == 0)


async def test_other_files_are_ignored(manager: HostedManager, registry: Path, serving: Serve) -> None:
    hidden = await serving(Registrant(registry / ".hidden.sock", a_plugin("a")))
    in_hidden = await serving(Registrant(registry / ".folder" / "reg.sock", a_plugin("a")))
    (registry / "file").write_text("")
    (registry / "loop").symlink_to(registry)
    seen = await serving(Registrant(registry / "seen.sock", a_plugin("b", resource_name="example.com/seen")))
    await manager.until(lambda: manager.available("example.com/seen") == 1)
    assert (hidden.asked, in_hidden.asked, seen.asked) == (0, 0, 1)
    assert manager.available(RESOURCE) == -1


async def test_other_kinds_of_plugins_are_ignored(manager: HostedManager, registry: Path, serving: Serve) -> None:
    """A CSI registrar exits when it is notified that it was not registered."""
    csi = await serving(
        Registrant(registry / "csi.sock", a_plugin("a"), kind="CSIPlugin", name="csi.example.com", versions=["1.0.0"])
    )
    await csi.until(lambda: csi.asked == 1)
    other = await serving(Registrant(registry / "fake.sock", a_plugin("a")))
    await other.until(lambda: other.statuses == [""])
    assert (csi.asked, csi.statuses) == (1, [])


@pytest.mark.kubelet("behaviour 11")
@pytest.mark.parametrize("endpoint", ["/etc/other.sock", "REGISTRY/../x.sock"], ids=["elsewhere", "leads out"])
async def test_a_rejected_plugin_is_notified_of_the_reason(
    manager: HostedManager, registry: Path, serving: Serve, endpoint: str
) -> None:
    (registry / "linked.sock").symlink_to(registry / "bad.sock")
    endpoint = endpoint.replace("REGISTRY", str(registry))
    registrant = await serving(Registrant(registry / "bad.sock", a_plugin("a"), endpoint=endpoint))
    await registrant.until(lambda: len(registrant.statuses) == 1)
    assert "must be empty, or the whole path" in registrant.statuses[0]
    assert not manager.manager.resources


@pytest.mark.kubelet("scenario 65", "scenario 69")
async def test_each_socket_has_one_operation_at_a_time(manager: HostedManager, registry: Path, serving: Serve) -> None:
    slow = Registrant(registry / "slow.sock", a_plugin("a", resource_name="example.com/slow"))
    slow.info_gate = asyncio.Event()
    await serving(slow)
    await slow.until(lambda: slow.asked == 1)
    await serving(Registrant(registry / "quick.sock", a_plugin("b")))
    await manager.until(lambda: manager.available(RESOURCE) == 1)
    slow.info_gate.set()
    await manager.until(lambda: manager.available("example.com/slow") == 1)
    assert slow.most_at_once == 1
