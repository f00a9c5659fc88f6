"""A file that cannot be removed keeps no server or task from ending, and does not end the agent."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer, Rejections
from nodedevice_agent.lib import filesystem
from nodedevice_agent.lib.deviceplugin_server.server import DevicePluginService, serving
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import is_served, remove
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.fakes.polling import until

GPU = "example.com/gpu"


def refusing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No file below the folder can be removed."""
    unlink = os.unlink

    def refuse(path: Any, *args: Any, **options: Any) -> None:
        if str(path).startswith(str(folder)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        unlink(path, *args, **options)

    monkeypatch.setattr(os, "unlink", refuse)


def test_a_file_that_cannot_be_removed_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove(tmp_path / "none")
    (tmp_path / "file").touch()
    remove(tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert not caplog.records
    refusing(monkeypatch, tmp_path)
    remove(tmp_path / "other")
    (record,) = caplog.records
    assert (vars(record)["path"], vars(record)["error"]) == (str(tmp_path / "other"), "Input/output error")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[DevicePluginService]:
    with FileWatcher() as watcher:
        yield DevicePluginService(SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher))


async def test_a_server_whose_socket_cannot_be_removed_ends(
    tmp_path: Path, service: DevicePluginService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the plugin would be served for ever, and its task, which is to end, be run again."""
    path = tmp_path / "s.sock"

    async def serve() -> None:
        async with serving(service, path):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await until(lambda: is_served(path))
    refusing(monkeypatch, path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_served(path)


async def test_the_registration_socket_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(resource_name: str, socket_name: str) -> None:
        """Nobody registers."""

    with closing(PluginDirectory.take(tmp_path)) as directory:
        server = RegistrationServer(directory, connect, Rejections())
        await server.start()
        refusing(monkeypatch, tmp_path)
        directory.forget(".kept-a.sock")
        await server.stop()
        assert not is_served(directory.registration_socket)


def test_only_that_nothing_is_there_is_an_answer() -> None:
    numbers = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM)
    assert [number for number in numbers if filesystem.is_absent(OSError(number, ""))] == [*numbers[:3]]
