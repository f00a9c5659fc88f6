import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from nodedevice_agent.lib.deviceplugin_server import registered_socket
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegisteredSocket, RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DevicePluginService
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity
from nodedevice_agent.plugins.run import serve
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.background import background
from tests.fakes.device_manager import Manager
from tests.fakes.virtual_time import later, virtual_time

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


async def test_a_path_that_the_kernel_does_not_take_is_an_error_with_its_length(tmp_path: Path) -> None:
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher)
        name = "x" * (107 - len(f"{tmp_path}/"))
        RegisteredSocket(GPU, name, tmp_path, watcher, lambda: DevicePluginService(source))
        with pytest.raises(CannotServe, match=r"example.com/gpu: .* 108 bytes, the kernel takes 107; use a shorter"):
            RegisteredSocket(GPU, f"{name}x", tmp_path, watcher, lambda: DevicePluginService(source))


class Vanishing:
    """Sockets that are removed after so many seconds, one after the other; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self._seconds = [*seconds]
        self.made: list[float] = []
        self.is_last = asyncio.Event()
        self.watcher = FileWatcher()
        monkeypatch.setattr(registered_socket, "serving", self._serving)
        monkeypatch.setattr(RegisteredSocket, "_stay_registered", self._stays)

    @asynccontextmanager
    async def _serving(self, *_: object) -> AsyncIterator[FileIdentity]:
        self.made.append(asyncio.get_running_loop().time())
        yield FileIdentity(0, 0, 0)

    async def _stays(self, *_: object) -> None:
        if not self._seconds:
            self.is_last.set()
            await asyncio.Event().wait()
        await later(self._seconds.pop(0))

    async def pauses(self, folder: Path) -> list[float]:
        """From each one that is made to the next one."""
        source = SimulatedSource(SimulatedSettings(GPU), folder, self.watcher)
        plugin = RegisteredSocket(GPU, "x.sock", folder, self.watcher, lambda: DevicePluginService(source))
        async with background(plugin.run()):
            await self.is_last.wait()
        return [after - before for before, after in pairwise(self.made)]


@virtual_time
async def test_a_socket_that_vanishes_again_and_again_is_made_ever_more_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has stayed for a moment."""
    vanishing = Vanishing(monkeypatch, 0.0, 0.0, 0.0, 5.0, 0.0)
    assert await vanishing.pauses(tmp_path) == pytest.approx([0.05, 0.1, 0.2, 5.0, 0.05])


async def test_a_source_is_read_before_it_is_served_and_runs_meanwhile(tmp_path: Path) -> None:
    happened: list[str] = []

    class Source(SimulatedSource):
        async def read(self) -> None:
            happened.append("read")
            await super().read()

        async def run(self) -> None:
            happened.append("runs")
            await super().run()

    with FileWatcher() as watcher:
        identities: asyncio.Queue[FileIdentity] = asyncio.Queue()

        def made(socket: FileIdentity) -> nullcontext[None]:
            identities.put_nowait(socket)
            return nullcontext()

        source = Source(SimulatedSettings(GPU), tmp_path, watcher)
        async with background(serve(source, tmp_path, watcher, while_served=made)):
            identity = await asyncio.wait_for(identities.get(), 60)
            assert identity in {file_identity(path) for path in tmp_path.iterdir()}
    assert happened[0] == "read"
    assert "runs" in happened


class Answering(Manager):
    """Answers each registration with this status, and dials no plugin."""

    code: grpc.StatusCode | None = None

    async def Register(self, request: api_pb2.RegisterRequest, context: Any) -> api_pb2.Empty:
        self.registrations.append(request)
        if self.code is not None:
            await context.abort(self.code, "why")
        return api_pb2.Empty()


@pytest.mark.parametrize(
    ("code", "streams", "state"),
    [
        (None, 0, RegistrationState.REGISTERED),
        (grpc.StatusCode.INVALID_ARGUMENT, 0, RegistrationState.REFUSED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 0, RegistrationState.NO_MANAGER),
        # newer kubelets refuse a socket that they are connected to
        (grpc.StatusCode.INVALID_ARGUMENT, 1, RegistrationState.REGISTERED),
    ],
)
async def test_what_a_managers_answer_means(
    code: grpc.StatusCode | None, streams: int, state: RegistrationState, tmp_path: Path
) -> None:
    manager, reports = Answering(tmp_path), asyncio.Queue[tuple[RegistrationState, str]]()
    manager.code = code
    await manager.start()
    with FileWatcher() as watcher:
        service = DevicePluginService(SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher))
        service.streams = streams
        plugin = RegisteredSocket(
            GPU, "x.sock", tmp_path, watcher, lambda: service, lambda *each: reports.put_nowait(each)
        )
        async with background(plugin.run()):
            detail = "" if state is RegistrationState.REGISTERED else f"{code.name if code else ''}: why"
            assert await asyncio.wait_for(reports.get(), 60) == (state, detail)
    await manager.stop()
    request = manager.registrations[0]
    assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", "x.sock", GPU)
    assert request.options == service.options
