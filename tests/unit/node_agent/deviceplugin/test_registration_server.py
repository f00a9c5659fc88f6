"""Register over a real socket: valid plugins, rejected ones with their status, and invalid requests."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin import registration_server
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer, Rejections
from nodedevice_agent.errors import AgentSettingsError, DirectoryServed

from tests.fakes.background import background
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.fakes.polling import PATIENCE_SECONDS, until
from tests.fakes.sockets import left_behind, listening

REFUSED = grpc.StatusCode.INVALID_ARGUMENT
NOT_REACHED = grpc.StatusCode.FAILED_PRECONDITION


class Manager:
    """Dials each plugin that registers, and keeps the connections; `cancelled` is set when a plugin has given up meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connections: list[PluginConnection] = []
        self.rejections = Rejections()
        self.cancelled = asyncio.Event()

    async def connect(self, resource_name: str, socket_name: str) -> None:
        try:
            self.connections.append(await PluginConnection.open(resource_name, self.folder / socket_name))
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    manager = Manager(tmp_path)
    server = RegistrationServer(PluginDirectory(tmp_path), manager.connect, manager.rejections)
    await server.start()
    yield manager
    await server.stop()
    assert not (tmp_path / "kubelet.sock").exists()
    for connection in manager.connections:
        await connection.aclose()


@pytest.fixture
async def plugin(manager: Manager) -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin("example.com/fake", {"d0": FakeDevice()}, preferred_available=True)
    await plugin.start(manager.folder)
    yield plugin
    await plugin.stop()


async def refusal(plugin: FakePlugin, **fields: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(**fields)
    return refused.value.code(), refused.value.details() or ""


@pytest.mark.kubelet("behaviour 7", "behaviour 8", "scenario 43")
async def test_ends_after_the_plugin_has_sent_its_options(manager: Manager, plugin: FakePlugin) -> None:
    plugin.pre_start_required = True
    await plugin.register()
    assert [call.method for call in plugin.calls] == ["GetDevicePluginOptions"]
    (connection,) = manager.connections
    assert connection.resource_name == "example.com/fake"
    assert connection.options.pre_start_required
    assert connection.options.get_preferred_allocation_available


@pytest.mark.kubelet("behaviour 5")
@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        pytest.param({"version": "v1alpha1"}, REFUSED, "v1beta1", id="version"),
        pytest.param({"resource_name": "fake"}, REFUSED, "domain/name", id="resource name"),
        pytest.param({"resource_name": "kubernetes.io/fake"}, REFUSED, "reserved", id="reserved name"),
        pytest.param({"endpoint": "../kubelet.sock"}, REFUSED, "plugin directory", id="out of the directory"),
        pytest.param({"endpoint": ""}, REFUSED, "file name", id="no endpoint"),
        pytest.param({"endpoint": "x" * 300}, NOT_REACHED, "does not exist", id="endpoint too long for a file"),
        pytest.param({"endpoint": "ghost.sock"}, NOT_REACHED, "must serve before it registers", id="no such socket"),
        pytest.param({"endpoint": "link.sock"}, NOT_REACHED, "is not a socket", id="a link"),
        pytest.param({"endpoint": "file.sock"}, NOT_REACHED, "is not a socket", id="a file"),
    ],
)
async def test_an_invalid_registration_is_rejected_with_its_reason(
    manager: Manager,
    plugin: FakePlugin,
    fields: dict[str, str],
    status: grpc.StatusCode,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (manager.folder / "link.sock").symlink_to(plugin.socket_path)
    (manager.folder / "file.sock").touch()
    code, details = await refusal(plugin, **fields)
    assert code is status
    assert words in details
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.ERROR, "registration rejected")]
    assert manager.connections == []
    assert words in manager.rejections.report()
    # and the next one is served as if nothing had been
    await plugin.register()
    assert len(manager.connections) == 1


@pytest.mark.kubelet("behaviour 9", "scenario 95")
async def test_a_plugin_that_refuses_to_send_its_options(manager: Manager, plugin: FakePlugin) -> None:
    plugin.knobs.options_error = RpcFailure(details="no\noptions " + "x" * 5000)
    code, details = await refusal(plugin)
    assert code is NOT_REACHED
    assert "failed to get device plugin options: INTERNAL: no options xx" in details
    assert len(details) < 1000


@pytest.mark.kubelet("behaviour 10")
async def test_a_socket_without_process(manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_connection, "DIAL_SECONDS", 0.2)
    left_behind(manager.folder / "dead.sock")
    code, details = await refusal(plugin, endpoint="dead.sock")
    assert code is NOT_REACHED
    assert "no response on dead.sock" in details


@pytest.mark.kubelet("scenario 42")
async def test_a_plugin_that_cancels_leaves_nothing_open(
    manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin's own deadline for Register passes while its options are asked for."""
    plugin.knobs.options_gate = asyncio.Event()
    giving_up = asyncio.create_task(plugin.register())
    await plugin.wait_for_calls("GetDevicePluginOptions")
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await manager.cancelled.wait()
    plugin.knobs.options_gate.set()
    plugin.knobs.options_gate = None
    await plugin.register()
    assert len(manager.connections) == 1


async def test_a_request_that_is_too_big_is_rejected(manager: Manager, plugin: FakePlugin) -> None:
    code, _ = await refusal(plugin, endpoint="x" * 100_000)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await plugin.register()


class TestSocketPath:
    @pytest.fixture
    async def server(self, tmp_path: Path) -> RegistrationServer:
        return RegistrationServer(PluginDirectory(tmp_path), Manager(tmp_path).connect, Rejections())

    @pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")])
    async def test_another_file_is_kept_and_reported(
        self, tmp_path: Path, server: RegistrationServer, make: Callable[[Path], None]
    ) -> None:
        make(tmp_path / "kubelet.sock")
        problem = r"--plugin-dir .*cannot create kubelet\.sock: .*not a socket.*remove it"
        with pytest.raises(AgentSettingsError, match=problem):
            await server.start()
        await server.stop()
        assert os.path.lexists(tmp_path / "kubelet.sock")

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


class Kept:
    """A server of a directory that is kept serving; `problems`: what prevented that, in order."""

    def __init__(self, folder: Path) -> None:
        self.manager = Manager(folder)
        self.directory = PluginDirectory.take(folder)
        self.socket = self.directory.registration_socket
        self.server = RegistrationServer(self.directory, self.manager.connect, self.manager.rejections)
        self.problems: list[str] = []

    async def register(self) -> None:
        """A plugin can register now."""
        plugin = FakePlugin("example.com/fake", {"d0": FakeDevice()})
        await plugin.start(self.manager.folder)
        await plugin.register()
        await plugin.stop()


class TestKeepServing:
    @pytest.fixture
    async def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
        monkeypatch.setattr(registration_server, "CHECK_SECONDS", 0.01)
        found = Kept(tmp_path / "p")
        with closing(found.directory):
            await found.server.start()
            async with background(found.server.keep(found.problems.append)):
                yield found
            await found.server.stop()
            for connection in found.manager.connections:
                await connection.aclose()

    async def test_removed_sockets_are_recreated_and_logged(self, kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
        kept.socket.unlink()
        await until(kept.socket.exists)
        assert kept.socket.stat().st_mode & 0o777 == 0o600
        await kept.register()
        assert caplog.messages == ["registration socket was removed; created it again"]
        assert kept.problems == []

    async def test_a_removed_directory_is_created_and_locked_again(self, kept: Kept) -> None:
        shutil.rmtree(kept.directory.path)
        await until(kept.socket.exists)
        await kept.register()
        with pytest.raises(DirectoryServed, match="lock"):
            PluginDirectory.take(kept.directory.path)

    async def test_another_process_is_reported_until_gone(self, kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
        kept.socket.unlink()
        with listening(kept.socket):
            taken = kept.socket.stat().st_ino
            await until(lambda: len(kept.problems) == 1)
            assert "it listens on kubelet.sock" in kept.problems[0]
            assert kept.socket.stat().st_ino == taken
        await until(lambda: len(kept.problems) == 2)
        await kept.register()
        assert kept.problems[1] == ""
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]

    async def test_a_run_after_a_failure_reports_the_end_of_the_problem_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registration_server, "CHECK_SECONDS", 0.01)
        found = Kept(tmp_path / "p")
        with closing(found.directory):
            await found.server.start()
            try:
                found.socket.unlink()
                with listening(found.socket):
                    async with background(found.server.keep(found.problems.append)):
                        await until(lambda: found.problems != [])
                async with background(found.server.keep(found.problems.append)):
                    await until(lambda: found.problems[1:] == [""])
            finally:
                await found.server.stop()

    async def test_a_directory_that_another_agent_locked_is_reported(self, kept: Kept) -> None:
        shutil.rmtree(kept.directory.path)
        # no await in between, so the server cannot be faster
        with closing(PluginDirectory.take(kept.directory.path)):
            await until(lambda: kept.problems != [])
            assert "it holds the directory's lock" in kept.problems[0]
            assert not kept.socket.exists()
        await until(lambda: kept.problems[1:] == [""])
        await kept.register()

    async def test_stopping_keeps_the_socket_of_another_process(self, kept: Kept) -> None:
        kept.socket.unlink()
        with listening(kept.socket):
            await kept.server.stop()
            assert kept.socket.is_socket()
