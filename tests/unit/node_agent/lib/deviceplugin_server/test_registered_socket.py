from pathlib import Path

import pytest
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegistrationFailed, register
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import socket_identity
from nodedevice_agent.plugins.run import serve
from nodedevice_agent.plugins.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.pacing import Backoff


def test_a_socket_moved_or_changed_is_the_same_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    before = socket_identity(path)
    path.chmod(0o600)
    assert socket_identity(path.rename(tmp_path / "b")) == before
    path.touch()
    assert socket_identity(path) != before
    assert socket_identity(tmp_path / "none") is None
    assert socket_identity(tmp_path / "a" / "none") is None


async def test_an_unreachable_manager_raises_our_error(tmp_path: Path) -> None:
    with pytest.raises(RegistrationFailed, match="UNAVAILABLE"):
        await register(tmp_path, "x.sock", "example.com/gpu", api_pb2.DevicePluginOptions(), 5)


async def test_a_path_that_is_too_long_is_an_error_with_its_length(tmp_path: Path) -> None:
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings("example.com/gpu"), tmp_path, watcher)
        with pytest.raises(CannotServe, match=r"example.com/gpu: .*the kernel takes 107; use a shorter"):
            await serve(source, tmp_path / ("d" * 100), watcher)


def test_backoff_doubles_to_its_limit_and_restarts() -> None:
    backoff = Backoff(1, 5)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1
