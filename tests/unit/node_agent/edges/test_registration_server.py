"""Register over a real socket: who is taken, who is refused with which status, and that nobody breaks it."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.edges import plugin_connection
from nodedevice_agent.edges.plugin_connection import PluginConnection
from nodedevice_agent.edges.refusals import Refusals
from nodedevice_agent.edges.registration_server import RegistrationServer
from nodedevice_agent.errors import SettingsError

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.plugin_knobs import RpcFailure

REFUSED = grpc.StatusCode.INVALID_ARGUMENT
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


async def test_is_answered_when_the_plugin_has_told_its_options(manager: Manager, plugin: FakePlugin) -> None:
    plugin.pre_start_required = True
    await plugin.register()
    assert [call.method for call in plugin.calls] == ["GetDevicePluginOptions"]
    (connection,) = manager.connections
    assert connection.resource_name == "example.com/fake"
    assert connection.options.pre_start_required
    assert connection.options.get_preferred_allocation_available


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


async def test_a_socket_whose_process_is_gone(
    manager: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_connection, "DIAL_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as owner:
        owner.bind(str(manager.folder / "dead.sock"))
    code, details = await refusal(plugin, endpoint="dead.sock")
    assert code is NOT_REACHED
    assert "no answer on dead.sock" in details


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
