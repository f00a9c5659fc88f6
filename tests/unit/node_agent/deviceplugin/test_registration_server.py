"""Register over a real socket: who is taken, who is refused with which status, and that nobody breaks it."""

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin import registration_server
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer
from nodedevice_agent.deviceplugin.rejections import Refusals
from nodedevice_agent.errors import DirectoryServed, SettingsError

from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure

REFUSED = grpc.StatusCode.INVALID_ARGUMENT
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 30
NOT_REACHED = grpc.StatusCode.FAILED_PRECONDITION


class Manager:
    """Dials whoever registers, and keeps the connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connections: list[PluginConnection] = []
        self.refusals = Refusals()

    async def connect(self, resource_name: str, socket_name: str) -> None:
        self.connections.append(await PluginConnection.open(resource_name, self.folder / socket_name))


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    manager = Manager(tmp_path)
    server = RegistrationServer(tmp_path / "kubelet.sock", manager.connect, manager.refusals)
    await server.start()
    yield manager
    await server.stop()
    assert not (tmp_path / "kubelet.sock").exists()
    for connection in manager.connections:
        await connection.close()


@pytest.fixture
async def plugin(manager: Manager) -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin("example.com/fake", {"d0": FakeDevice()}, preferred_available=True)
    await plugin.start(manager.folder)
    yield plugin
    await plugin.stop()


async def refusal(plugin: FakePlugin, **said: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(**said)
    return refused.value.code(), refused.value.details() or ""


async def test_only_its_owner_may_write_to_the_socket(manager: Manager) -> None:
    assert (manager.folder / "kubelet.sock").stat().st_mode & 0o777 == 0o600


@pytest.mark.kubelet("behaviour 7", "behaviour 8", "scenario 43")
async def test_is_answered_when_the_plugin_has_told_its_options(manager: Manager, plugin: FakePlugin) -> None:
    plugin.pre_start_required = True
    await plugin.register()
    assert [call.method for call in plugin.calls] == ["GetDevicePluginOptions"]
    (connection,) = manager.connections
    assert connection.resource_name == "example.com/fake"
    assert connection.options.pre_start_required
    assert connection.options.get_preferred_allocation_available


@pytest.mark.kubelet("behaviour 5")
@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        pytest.param({"version": "v1alpha1"}, REFUSED, "v1beta1", id="version"),
        pytest.param({"resource_name": "fake"}, REFUSED, "domain/name", id="resource name"),
        pytest.param({"resource_name": "kubernetes.io/fake"}, REFUSED, "reserved", id="reserved name"),
        pytest.param({"endpoint": "../kubelet.sock"}, REFUSED, "plugin directory", id="out of the directory"),
        pytest.param({"endpoint": ""}, REFUSED, "file name", id="no endpoint"),
        pytest.param({"endpoint": "x" * 300}, NOT_REACHED, "not there", id="endpoint too long for a file"),
        pytest.param({"endpoint": "ghost.sock"}, NOT_REACHED, "has to serve before it registers", id="no such socket"),
        pytest.param({"endpoint": "link.sock"}, NOT_REACHED, "is not a socket", id="a link"),
        pytest.param({"endpoint": "file.sock"}, NOT_REACHED, "is not a socket", id="a file"),
        pytest.param({"endpoint": "folder"}, NOT_REACHED, "is not a socket", id="a folder"),
    ],
)
async def test_what_is_wrong_is_refused_and_said(
    manager: Manager,
    plugin: FakePlugin,
    said: dict[str, str],
    status: grpc.StatusCode,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (manager.folder / "link.sock").symlink_to(plugin.socket_path)
    (manager.folder / "file.sock").touch()
    (manager.folder / "folder").mkdir()
    code, details = await refusal(plugin, **said)
    assert code is status
    assert words in details
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.ERROR, "registration refused")]
    assert manager.connections == []
    assert words in manager.refusals.told()
    # and the next one is served as if nothing had been
    await plugin.register()
    assert len(manager.connections) == 1


@pytest.mark.kubelet("behaviour 9", "scenario 95")
async def test_a_plugin_that_refuses_to_tell_its_options(manager: Manager, plugin: FakePlugin) -> None:
    plugin.knobs.options_error = RpcFailure(details="no\noptions " + "x" * 5000)
    code, details = await refusal(plugin)
    assert code is NOT_REACHED
    assert "failed to get device plugin options: INTERNAL: no options xx" in details
    assert len(details) < 1000


async def test_a_plugin_that_hangs_holds_up_nobody(
    manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_connection, "OPTIONS_SECONDS", 0.2)
    plugin.knobs.options_gate = asyncio.Event()
    hanging = asyncio.create_task(refusal(plugin))
    await plugin.wait_for_calls("GetDevicePluginOptions")
    other = FakePlugin("example.com/other", {"d0": FakeDevice()})
    await other.start(manager.folder)
    await other.register()
    code, details = await hanging
    assert (code, "DEADLINE_EXCEEDED" in details) == (NOT_REACHED, True)
    assert [connection.resource_name for connection in manager.connections] == ["example.com/other"]
    plugin.knobs.options_gate.set()
    await other.stop()


@pytest.mark.kubelet("behaviour 10")
async def test_a_socket_whose_process_is_gone(
    manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_connection, "DIAL_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
        owner.bind(str(manager.folder / "dead.sock"))
    code, details = await refusal(plugin, endpoint="dead.sock")
    assert code is NOT_REACHED
    assert "no answer on dead.sock" in details


@pytest.mark.kubelet("scenario 42")
async def test_a_plugin_that_gives_up_waiting_leaves_nothing_open(
    manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin's own deadline for Register passes while its options are asked for."""
    plugin.knobs.options_gate = asyncio.Event()
    giving_up = asyncio.create_task(plugin.register())
    await plugin.wait_for_calls("GetDevicePluginOptions")
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    plugin.knobs.options_gate.set()
    plugin.knobs.options_gate = None
    await plugin.register()
    assert len(manager.connections) == 1


async def test_more_than_a_registration_can_be_is_refused(manager: Manager, plugin: FakePlugin) -> None:
    code, _ = await refusal(plugin, endpoint="x" * 100_000)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await plugin.register()


class TestTheSocketsPlace:
    @pytest.fixture
    async def server(self, tmp_path: Path) -> RegistrationServer:
        return RegistrationServer(tmp_path / "kubelet.sock", Manager(tmp_path).connect, Refusals())

    @pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")])
    async def test_what_is_no_socket_is_left_there_and_said(
        self, tmp_path: Path, server: RegistrationServer, make: Callable[[Path], None]
    ) -> None:
        make(tmp_path / "kubelet.sock")
        with pytest.raises(
            SettingsError, match=r"--plugin-dir .*kubelet\.sock cannot be made: .*not a socket.*remove it"
        ):
            await server.start()
        await server.stop()
        assert os.path.lexists(tmp_path / "kubelet.sock")

    async def test_a_directory_that_is_gone_is_said(self, tmp_path: Path) -> None:
        server = RegistrationServer(tmp_path / "gone/kubelet.sock", Manager(tmp_path).connect, Refusals())
        with pytest.raises(SettingsError, match=r"--plugin-dir .*gone: kubelet\.sock cannot be made"):
            await server.start()
        await server.stop()

    async def test_what_another_serves_is_never_taken(self, tmp_path: Path, server: RegistrationServer) -> None:
        with serving(tmp_path / "kubelet.sock"):
            with pytest.raises(DirectoryServed, match=r"it answers on kubelet\.sock"):
                await server.start()
            await server.stop()
            assert (tmp_path / "kubelet.sock").is_socket()

    async def test_what_comes_there_at_the_last_moment_is_not_taken_either(
        self, tmp_path: Path, server: RegistrationServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "kubelet.sock").touch()
        monkeypatch.setattr(registration_server, "_make_room", lambda socket: None)
        with pytest.raises(SettingsError, match="File exists"):
            await server.start()
        await server.stop()
        assert os.listdir(tmp_path) == ["kubelet.sock"]

    async def test_a_file_system_without_hard_links(
        self, tmp_path: Path, server: RegistrationServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*args: object, **options: object) -> None:
            raise PermissionError("not here")

        monkeypatch.setattr(os, "link", link)
        await server.start()
        assert os.listdir(tmp_path) == ["kubelet.sock"]
        await server.stop()
        assert os.listdir(tmp_path) == []


def serving(path: Path) -> socket.socket:
    """Somebody else's; its file stays when it ends."""
    other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    other.bind(str(path))
    other.listen()
    return other


class Kept:
    """A server of a directory, looked after; `said`: what was in the way, in order."""

    def __init__(self, folder: Path) -> None:
        self.manager = Manager(folder)
        self.directory = PluginDirectory.take(folder)
        self.socket = self.directory.registration_socket
        self.server = RegistrationServer(self.socket, self.manager.connect, self.manager.refusals)
        self.said: list[str] = []
        self._looked = asyncio.Event()

    def hold(self) -> None:
        self._looked.set()
        self.directory.hold()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Asked after every look."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self._looked.clear()
                await self._looked.wait()

    async def register(self) -> None:
        """A plugin that comes now is taken in."""
        plugin = FakePlugin("example.com/fake", {"d0": FakeDevice()})
        await plugin.start(self.manager.folder)
        await plugin.register()
        await plugin.stop()


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Kept]:
    found = Kept(folder)
    with found.directory:
        await found.server.start()
        keeping = asyncio.create_task(found.server.keep(found.hold, found.said.append))
        try:
            yield found
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await found.server.stop()
            for connection in found.manager.connections:
                await connection.close()


class TestTheSocketStays:
    @pytest.fixture
    async def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
        monkeypatch.setattr(registration_server, "LOOK_SECONDS", 0.01)
        async with kept(tmp_path / "p") as found:
            yield found

    async def test_one_that_was_removed_is_made_anew_and_said_once(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept.socket.unlink()
        await kept.until(kept.socket.exists)
        assert kept.socket.stat().st_mode & 0o777 == 0o600
        await kept.register()
        assert [record.getMessage() for record in caplog.records] == ["registration socket was gone; made anew"]
        assert kept.said == []

    async def test_a_directory_that_was_removed_is_made_and_held_anew(self, kept: Kept) -> None:
        shutil.rmtree(kept.directory.path)
        await kept.until(kept.socket.exists)
        await kept.register()
        with pytest.raises(DirectoryServed, match="lock"):
            PluginDirectory.take(kept.directory.path)

    async def test_anothers_is_left_alone_and_said_until_it_ends(
        self, kept: Kept, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept.socket.unlink()
        with serving(kept.socket):
            taken = kept.socket.stat().st_ino
            await kept.until(lambda: len(kept.said) == 1)
            assert "it answers on kubelet.sock" in kept.said[0]
            assert kept.socket.stat().st_ino == taken
        await kept.until(lambda: len(kept.said) == 2)
        await kept.register()
        assert kept.said[1] == ""
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]

    async def test_another_that_took_the_directory_has_it(self, kept: Kept) -> None:
        shutil.rmtree(kept.directory.path)
        # whoever is quicker; nothing is awaited in between
        with PluginDirectory.take(kept.directory.path):
            await kept.until(lambda: kept.said != [])
            assert "it holds the directory's lock" in kept.said[0]
            assert not kept.socket.exists()
        await kept.until(lambda: kept.said[1:] == [""])
        await kept.register()

    async def test_an_end_leaves_anothers_there(self, kept: Kept) -> None:
        kept.socket.unlink()
        with serving(kept.socket):
            await kept.server.stop()
            assert kept.socket.is_socket()
