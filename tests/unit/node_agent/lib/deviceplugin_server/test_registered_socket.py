import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from nodedevice_agent.lib.deviceplugin_server import registered_socket
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegisteredSocket, RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DevicePluginService
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity
from nodedevice_agent.lib.grpc_server import CHANNEL_OPTIONS
from nodedevice_agent.plugins.run import serve
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

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


async def test_a_path_may_be_as_long_as_the_kernel_takes(tmp_path: Path) -> None:
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher)
        name = "x" * (107 - len(f"{tmp_path}/"))
        RegisteredSocket(GPU, name, tmp_path, watcher, lambda: DevicePluginService(source))
        with pytest.raises(CannotServe, match="has 108 bytes, the kernel takes 107"):
            RegisteredSocket(GPU, f"{name}x", tmp_path, watcher, lambda: DevicePluginService(source))


async def test_a_path_that_is_too_long_is_an_error_with_its_length(tmp_path: Path) -> None:
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU), tmp_path, watcher)
        with pytest.raises(CannotServe, match=r"example.com/gpu: .*the kernel takes 107; use a shorter"):
            await serve(source, tmp_path / ("d" * 100), watcher)


class Vanishing:
    """Sockets that are removed after so many seconds, one after the other; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self._seconds = [*seconds]
        self.made: list[float] = []
        self.states: list[RegistrationState] = []
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
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(self._seconds.pop(0), over.set)
        await over.wait()

    async def pauses(self, folder: Path) -> list[float]:
        """From each one that is made to the next one."""
        source = SimulatedSource(SimulatedSettings(GPU), folder, self.watcher)
        plugin = RegisteredSocket(
            GPU,
            "x.sock",
            folder,
            self.watcher,
            lambda: DevicePluginService(source),
            lambda state, detail: self.states.append(state),
        )
        running = asyncio.create_task(plugin.run())
        await self.is_last.wait()
        assert [each.followed for each in self.watcher._subscriptions] == [{folder}]
        running.cancel()
        await asyncio.wait([running])
        return [after - before for before, after in pairwise(self.made)]


@virtual_time
async def test_a_socket_that_vanishes_again_and_again_is_made_ever_more_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has stayed for a moment."""
    vanishing = Vanishing(monkeypatch, 0.0, 0.0, 0.0, 5.0, 0.0)
    assert await vanishing.pauses(tmp_path) == pytest.approx([0.05, 0.1, 0.2, 5.0, 0.05])


@virtual_time
async def test_while_a_newer_agent_serves_the_path_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = [True, True, False]
    monkeypatch.setattr(registered_socket, "is_served", lambda _: served.pop(0))
    vanishing = Vanishing(monkeypatch, 0.0)
    assert await vanishing.pauses(tmp_path) == pytest.approx([2 * registered_socket.RESCAN_SECONDS])
    assert vanishing.states == [RegistrationState.TAKEN] * 2


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
        running = asyncio.create_task(serve(source, tmp_path, watcher, while_served=made))
        identity = await asyncio.wait_for(identities.get(), 60)
        assert identity in {file_identity(path) for path in tmp_path.iterdir()}
        running.cancel()
        await asyncio.wait([running])
    assert happened[0] == "read"
    assert "runs" in happened


class Play:
    """A socket beside that of a manager. attempts: when it tried to register; waits: for how long it waited then.

    outcomes: of the attempts, in turn; the last one stays. steps: what happens in each wait; after the last one its socket is gone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *steps: Callable[["Play"], None]) -> None:
        self.manager: FileIdentity | None = FileIdentity(1, 1, 1)
        self.outcomes = [True]
        self.streams = 0
        self.attempts: list[float] = []
        self.waits: list[float] = []
        self.states: list[RegistrationState] = []
        self._is_there = True
        self._steps = [*steps]
        self._events: set[Path] = set()
        self._folder = folder
        monkeypatch.setattr(registered_socket, "file_identity", lambda _: self.manager)
        monkeypatch.setattr(RegisteredSocket, "_is_there", lambda *_: self._is_there)
        monkeypatch.setattr(RegisteredSocket, "_try_to_register", lambda *_: self._try())

    def changed(self) -> None:
        """The file watcher reports the manager's socket."""
        self._events = {self._folder / "kubelet.sock"}

    async def _try(self) -> bool:
        self.attempts.append(asyncio.get_running_loop().time() - self._began)
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    async def wait(self, seconds: float) -> set[Path]:
        self.waits.append(seconds)
        self._is_there = bool(self._steps)
        if not self._steps:
            return set()
        self._steps.pop(0)(self)
        found, self._events = self._events, set()
        if not found:
            await later(seconds)
        return found

    def follow(self, _: object) -> None: ...
    def drain(self) -> None: ...

    async def run(self) -> None:
        self._began = asyncio.get_running_loop().time()
        with FileWatcher() as watcher:
            plugin = RegisteredSocket(
                GPU, "x.sock", self._folder, watcher, cast(Any, None), lambda state, _: self.states.append(state)
            )
            await plugin._stay_registered(cast(Any, self), FileIdentity(2, 2, 2), cast(Any, self))


def nothing(_: Play) -> None:
    """Happens."""


def goes(play: Play) -> None:
    play.manager = None


def comes(play: Play) -> None:
    play.manager = FileIdentity(3, 3, len(play.waits))


def is_listed(play: Play) -> None:
    play.streams = 1


RESCAN = registered_socket.RESCAN_SECONDS


@pytest.mark.parametrize(
    ("outcomes", "steps", "attempts", "waits"),
    [
        pytest.param([True], [is_listed, nothing], [0], [RESCAN] * 3, id="once"),
        pytest.param(
            [False, False, False, True], [nothing] * 3, [0, 0.2, 0.6, 1.4], [0.2, 0.4, 0.8, RESCAN], id="late"
        ),
        pytest.param([True], [nothing, is_listed, nothing], [0, 30], [RESCAN] * 4, id="forgotten by the manager"),
        pytest.param([True], [goes, comes, is_listed], [0, 60], [RESCAN] * 4, id="the manager goes and comes"),
        pytest.param([True], [is_listed, comes, nothing], [0, 60], [RESCAN] * 4, id="another manager"),
        pytest.param(
            [True], [is_listed, Play.changed, nothing], [0, 30], [RESCAN] * 4, id="a new socket of the same identity"
        ),
        pytest.param([False, True], [Play.changed, is_listed], [0, 0], [0.2, RESCAN, RESCAN], id="news end the pause"),
        pytest.param(
            [False, False, True, False, True],
            [nothing, nothing, comes, nothing, nothing],
            [0, 0.2, 0.6, 30.6, 30.8, 60.8],
            [0.2, 0.4, RESCAN, 0.2, RESCAN, RESCAN],
            id="pauses begin with the first again",
        ),
        pytest.param(
            [False], [nothing] * 9, [0, 0.2, 0.6, 1.4, 3, 6.2, 12.6, 25.4, 51, 81], None, id="pauses have a bound"
        ),
    ],
)
@virtual_time
async def test_when_it_registers(
    outcomes: list[bool],
    steps: list[Callable[[Play], None]],
    attempts: list[float],
    waits: list[float] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play(monkeypatch, tmp_path, *steps)
    play.outcomes = [*outcomes]
    await play.run()
    assert play.attempts == pytest.approx(attempts, abs=1e-3)
    assert waits is None or play.waits == pytest.approx(waits, abs=1e-3)


@virtual_time
async def test_without_a_manager_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(monkeypatch, tmp_path, nothing)
    play.manager = None
    await play.run()
    assert (play.attempts, play.waits) == ([], [RESCAN] * 2)
    assert play.states == [RegistrationState.NO_MANAGER] * 2


@pytest.mark.parametrize(
    ("code", "streams", "state"),
    [
        (None, 0, RegistrationState.REGISTERED),
        (grpc.StatusCode.INVALID_ARGUMENT, 0, RegistrationState.REFUSED),
        (grpc.StatusCode.UNAVAILABLE, 0, RegistrationState.NO_MANAGER),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 0, RegistrationState.NO_MANAGER),
        # newer kubelets refuse a socket that they are connected to
        (grpc.StatusCode.INVALID_ARGUMENT, 1, RegistrationState.REGISTERED),
    ],
)
async def test_what_is_sent_and_what_an_answer_means(
    code: grpc.StatusCode | None,
    streams: int,
    state: RegistrationState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    class Stub:
        def __init__(self, _: object) -> None: ...

        async def Register(self, request: api_pb2.RegisterRequest, timeout: float) -> None:
            asked.extend((request, timeout))
            if code is not None:
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "why")

    def channel(target: str, options: object) -> nullcontext[None]:
        asked.extend((target, options))
        return nullcontext()

    monkeypatch.setattr(api_pb2_grpc, "RegistrationStub", Stub)
    monkeypatch.setattr(grpc.aio, "insecure_channel", channel)
    states: list[tuple[RegistrationState, str]] = []
    options = api_pb2.DevicePluginOptions(get_preferred_allocation_available=True)
    service = cast(Any, SimpleNamespace(streams=streams, options=options))
    with FileWatcher() as watcher:
        plugin = RegisteredSocket(
            GPU, "x.sock", tmp_path, watcher, lambda: service, lambda found, detail: states.append((found, detail))
        )
        assert await plugin._try_to_register(service) is (state is RegistrationState.REGISTERED)
    request = api_pb2.RegisterRequest(version="v1beta1", endpoint="x.sock", resource_name=GPU, options=options)
    assert asked == [
        f"unix:{tmp_path}/kubelet.sock",
        CHANNEL_OPTIONS,
        request,
        registered_socket._REGISTER_SECONDS,
    ]
    detail = "" if state is RegistrationState.REGISTERED else f"{code.name if code else ''}: why"
    assert states == [(state, detail)]
