"""Built-in plugins register and serve over real sockets, again and again, whatever happens to manager and sockets."""

import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.filesystem import file_identity

from tests.fakes.device_manager import Manager
from tests.fakes.hosted_manager import hosted
from tests.fakes.polling import until
from tests.integration.builtin_plugins.plugins import GPU, SERIAL, gpus, running, serial


async def test_registers_and_lists_at_once(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(2, numaNodes=2), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        assert [(r.version, r.resource_name) for r in manager.registrations] == [("v1beta1", GPU)]
        assert manager.options[GPU].get_preferred_allocation_available
        assert not manager.options[GPU].pre_start_required
        nodes = [[node.ID for node in device.topology.nodes] for device in manager.lists[GPU][-1]]
        assert nodes == [[0], [1]]


async def test_socket_is_private_and_gone_after_a_stop(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        assert stat.S_IMODE((plugin_dir / socket_name(GPU)).stat().st_mode) == 0o600
    assert [path.name for path in plugin_dir.iterdir()] == ["kubelet.sock"]


async def test_a_directory_with_characters_that_grpc_would_parse(tmp_path: Path) -> None:
    folder = tmp_path / "%41?b#c"
    folder.mkdir()
    async with hosted(folder) as manager, running(gpus(), manager.plugin_dir, tmp_path):
        await manager.until(lambda: manager.available(GPU) == 2)


async def test_a_rejected_registration_is_retried(
    manager: Manager, plugin_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager.refuse = "not today"
    async with running(gpus(), plugin_dir, tmp_path):
        await until(lambda: any("not today" in getattr(record, "error", "") for record in caplog.records))
        manager.refuse = ""
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_registers_again_with_a_restarted_manager(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    """As a kubelet restarts: it removes its own socket, then every socket in the directory, then creates a new one."""
    async with running({**gpus(), **serial(tmp_path)}, plugin_dir, tmp_path):
        await manager.until(lambda: {r.resource_name for r in manager.registrations} == {GPU, SERIAL})
        for _ in range(5):
            await manager.stop()
            manager.wipe()
            manager.registrations.clear()
            manager.lists.clear()
            await manager.start()
            await manager.until(lambda: {r.resource_name for r in manager.registrations} == {GPU, SERIAL})
            await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_serves_again_when_its_own_socket_is_removed(served: Manager, plugin_dir: Path) -> None:
    served.lists.clear()
    (plugin_dir / socket_name(GPU)).unlink()
    await served.until_listed(GPU, ["gpu-0", "gpu-1"])
    assert len(served.registrations) == 2


@contextlib.asynccontextmanager
async def newcomer(path: Path) -> AsyncIterator[None]:
    """Another process takes over this path: a live server whose socket is moved there."""
    newer = grpc.aio.server()
    newer.add_insecure_port(f"unix:{path.with_name('newer')}")
    await newer.start()
    path.with_name("newer").rename(path)
    try:
        yield
    finally:
        path.unlink()
        await newer.stop(None)


async def test_the_newest_process_serves_until_it_ends(
    served: Manager, plugin_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = plugin_dir / socket_name(GPU)
    async with newcomer(path):
        taken_over = file_identity(path)
        await until(lambda: "another process serves" in caplog.text)
        assert file_identity(path) == taken_over
        served.lists.clear()
    await served.until_listed(GPU, ["gpu-0", "gpu-1"])
