"""Built-in plugins register and serve over real sockets, again and again, whatever happens to manager and sockets."""

import asyncio
import contextlib
import errno
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.lib import file_watcher
from nodedevice_agent.lib.deviceplugin_server import registered_socket
from nodedevice_agent.lib.deviceplugin_server import server as serving
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity
from nodedevice_agent.plugins.run import serve
from nodedevice_agent.plugins.simulated import source as simulated
from nodedevice_agent.plugins.simulated.control import set_health
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_common import tasks

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


async def test_waits_for_the_plugin_directory(tmp_path: Path) -> None:
    plugin_dir = tmp_path / "not" / "yet"
    late = Manager(plugin_dir)
    async with running(gpus(), plugin_dir, tmp_path):
        plugin_dir.mkdir(parents=True)
        await late.start()
        await late.until_listed(GPU, ["gpu-0", "gpu-1"])
    await late.stop()


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


async def test_a_new_kubelet_sock_equal_to_the_old_one_is_noticed(
    manager: Manager, plugin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems reuse an inode number at once, and their clock may not have advanced."""
    for module in (registered_socket, serving):
        monkeypatch.setattr(module, "file_identity", lambda path: FileIdentity(1, 1, 1) if path.exists() else None)
    other = Manager(plugin_dir)
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        await other.start("another.sock")
        (plugin_dir / "another.sock").rename(plugin_dir / "kubelet.sock")
        await other.until_listed(GPU, ["gpu-0", "gpu-1"])
    await other.stop()


async def test_serves_again_when_its_own_socket_is_removed(served: Manager, plugin_dir: Path) -> None:
    served.lists.clear()
    (plugin_dir / socket_name(GPU)).unlink()
    await served.until_listed(GPU, ["gpu-0", "gpu-1"])
    assert len(served.registrations) == 2


async def test_registers_again_without_an_open_stream(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    """The manager gave up on the plugin, but still serves the same socket."""
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, 1), tmp_path, watcher)
        task = asyncio.create_task(serve(source, plugin_dir, watcher, rescan_seconds=0.05))
        await manager.until_listed(GPU, ["gpu-0"])
        await manager.hang_up()
        # a slow machine has more of them until the stream is open
        await manager.until(lambda: len(manager.registrations) >= 2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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


async def test_its_exit_keeps_the_socket_of_a_newer_process(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    path = plugin_dir / socket_name(GPU)
    async with contextlib.AsyncExitStack() as stack:
        async with running(gpus(), plugin_dir, tmp_path):
            await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
            await stack.enter_async_context(newcomer(path))
        assert path.is_socket()


async def test_polling_finds_everything_without_inotify(
    manager: Manager, plugin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(file_watcher, "INotify", refuse)
    monkeypatch.setattr(simulated, "_RESCAN_SECONDS", 0.05)
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, 2), tmp_path, watcher)
        task = asyncio.create_task(serve(source, plugin_dir, watcher, rescan_seconds=0.05))
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        set_health(tmp_path, GPU, "gpu-1", healthy=False)
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        await manager.stop()
        manager.wipe()
        manager.lists.clear()
        await manager.start()
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.usefixtures("quick_restarts")
async def test_a_failed_plugin_does_not_affect_the_others(
    manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (host / "dev/ttyUSB0").touch()
    state_dir = tmp_path / "state"
    state_dir.write_text("a file where a directory must be")
    async with running({**gpus(), **serial(host)}, plugin_dir, state_dir):
        await manager.until_listed(SERIAL, ["ttyUSB0"])
        assert GPU in [getattr(record, "resource_name", "") for record in caplog.records if record.levelname == "ERROR"]
        state_dir.unlink()
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
    assert not any(record.exc_info for record in caplog.records)
