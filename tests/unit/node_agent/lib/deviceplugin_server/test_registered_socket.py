import asyncio
import socket
from contextlib import closing
from pathlib import Path

import pytest
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegisteredSocket, RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DevicePluginService
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import file_identity
from nodedevice_agent.plugins.run import serve
from nodedevice_agent.plugins.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

GPU = "example.com/gpu"


def test_a_socket_moved_or_changed_is_the_same_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    before = file_identity(path)
    path.chmod(0o600)
    assert file_identity(path.rename(tmp_path / "b")) == before
    path.touch()
    assert file_identity(path) != before
    assert file_identity(tmp_path / "none") is None
    assert file_identity(tmp_path / "a" / "none") is None


async def test_a_manager_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    """Its socket outlived it."""
    reported: asyncio.Future[tuple[RegistrationState, str]] = asyncio.get_running_loop().create_future()

    def report(state: RegistrationState, detail: str) -> None:
        if not reported.done():
            reported.set_result((state, detail))

    with closing(socket.socket(socket.AF_UNIX)) as left, FileWatcher() as watcher:
        left.bind(str(tmp_path / "kubelet.sock"))
        source = SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher)
        plugin = RegisteredSocket(GPU, "x.sock", tmp_path, watcher, lambda: DevicePluginService(source), report)
        running = asyncio.create_task(plugin.run())
        state, detail = await asyncio.wait_for(reported, 60)
        running.cancel()
        await asyncio.wait([running])
    assert (state, detail.partition(":")[0]) == (RegistrationState.NO_MANAGER, "UNAVAILABLE")


async def test_a_path_that_is_too_long_is_an_error_with_its_length(tmp_path: Path) -> None:
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher)
        with pytest.raises(CannotServe, match=r"example.com/gpu: .*the kernel takes 107; use a shorter"):
            await serve(source, tmp_path / ("d" * 100), watcher)
