"""A file that cannot be removed keeps no server or task from ending, and does not end the agent."""

import asyncio
import errno
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer, Rejections
from nodedevice_agent.lib import filesystem
from nodedevice_agent.lib.deviceplugin_server.server import DevicePluginService, serving
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import is_served, remove
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.fakes.background import background
from tests.fakes.polling import until
from tests.unit.node_agent.plugins.generic.test_unread import failing

GPU = "example.com/gpu"


def test_a_file_that_cannot_be_removed_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove(tmp_path / "none")
    (tmp_path / "file").touch()
    remove(tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert not caplog.records
    with failing(tmp_path, "unlink", errno.EIO):
        remove(tmp_path / "other")
    (record,) = caplog.records
    assert (vars(record)["path"], vars(record)["error"]) == (str(tmp_path / "other"), "Input/output error")


async def test_a_server_whose_socket_cannot_be_removed_ends(tmp_path: Path) -> None:
    """Else the plugin would be served for ever, and its task, which is to end, be run again."""
    service = DevicePluginService(SimulatedSource(SimulatedSettings(GPU), tmp_path, FileWatcher()))
    path = tmp_path / "s.sock"

    async def serve() -> None:
        async with serving(service, path):
            await asyncio.Event().wait()

    with ExitStack() as broken:
        async with background(serve()):
            await until(lambda: is_served(path))
            broken.enter_context(failing(path, "unlink", errno.EIO))
        assert not is_served(path)


async def test_the_registration_socket_likewise(tmp_path: Path) -> None:
    async def connect(resource_name: str, socket_name: str) -> None:
        """Nobody registers."""

    with closing(PluginDirectory.take(tmp_path)) as directory:
        server = RegistrationServer(directory, connect, Rejections())
        await server.start()
        with failing(tmp_path, "unlink", errno.EIO):
            directory.forget(".kept-a.sock")
            await server.stop()
        assert not is_served(directory.registration_socket)


def test_only_that_nothing_is_there_is_an_answer() -> None:
    numbers = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM)
    assert [number for number in numbers if filesystem.is_absent(OSError(number, ""))] == [*numbers[:3]]
