"""The agent is connected whenever the runtime is there: whichever starts first, stops, or sends invalid bytes."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.runtime import Validator
from nodedevice_agent.nri import connector as plugin_module
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.nri.mux import frames
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.runtime_handler import PATIENCE_SECONDS, Recorder
from tests.fakes.virtual_time import virtual_time

# the pauses between attempts pass at once: the runtime and its sockets are in this process
pytestmark = virtual_time


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """In a directory that the runtime has made."""
    (tmp_path / "nri").mkdir()
    return tmp_path / "nri" / "nri.sock"


def running(handler: Recorder, socket: Path) -> AbstractAsyncContextManager[None]:
    return background(NriPlugin(handler, socket, "10").run())


async def disconnected(handler: Recorder) -> str:
    """The reason in the next call."""
    word, reason = await handler.next()
    assert word == "disconnected"
    return str(reason)


def is_connected() -> float | None:
    return REGISTRY.get_sample_value("nodedevice_agent_runtime_connected")


async def until(handler: Recorder, word: str) -> tuple[object, ...]:
    while (call := await handler.next())[0] != word:
        pass
    return call


async def test_reconnects_to_a_runtime_that_comes_back(handler: Recorder, socket: Path) -> None:
    async with running(handler, socket):
        for _ in range(3):
            async with FakeRuntime(socket):
                await until(handler, "synchronized")
                assert (await handler.next())[0] == "connected"
                assert is_connected() == 1
            assert await disconnected(handler) == "the container runtime closed the connection"
            assert is_connected() == 0


async def test_a_new_socket_is_used_at_once(handler: Recorder, socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_module, "FIRST_PAUSE_SECONDS", 1000.0)
    monkeypatch.setattr(plugin_module, "LONGEST_PAUSE_SECONDS", 1000.0)
    began = asyncio.get_running_loop().time()
    # it exists already, so that only file events show the next one
    async with FakeRuntime(socket) as runtime, running(handler, socket):
        await until(handler, "connected")
        await (await runtime.plugin()).close()
        await disconnected(handler)
        socket.unlink()
        async with FakeRuntime(socket):
            await until(handler, "connected")
    assert asyncio.get_running_loop().time() < began + 1000


async def test_a_file_beside_it_is_no_reason(handler: Recorder, socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's own files may be in the same directory, and change with each list of devices."""
    monkeypatch.setattr(plugin_module, "FIRST_PAUSE_SECONDS", 1000.0)
    monkeypatch.setattr(plugin_module, "LONGEST_PAUSE_SECONDS", 1000.0)
    runtime = FakeRuntime(socket)
    runtime.close_after_bytes = 0
    async with runtime, running(handler, socket):
        while not runtime.connections:
            await asyncio.sleep(0.01)
        for number in range(5):
            socket.with_name(str(number)).write_text("")
            await asyncio.sleep(10)
        assert len(runtime.connections) == 1
        runtime.close_after_bytes = None
        socket.rename(socket.with_name("moved")).rename(socket)
        await until(handler, "connected")


async def test_a_dead_socket_is_logged_once(handler: Recorder, socket: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with FakeRuntime(socket) as runtime:
        left_behind = socket.with_name("left")
        socket.rename(left_behind)
    left_behind.rename(socket)
    assert runtime.connections == []
    async with running(handler, socket):
        assert "nothing listens" in await disconnected(handler)
        # further attempts end alike
        for _ in range(5):
            socket.touch()
            await asyncio.sleep(plugin_module.LONGEST_PAUSE_SECONDS)
        socket.unlink()
        assert "does not exist" in await disconnected(handler)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_a_path_that_no_socket_can_have(handler: Recorder, tmp_path: Path) -> None:
    async with running(handler, tmp_path / ("x" * 120)):
        assert "too long for a socket; the limit is 107 bytes" in await disconnected(handler)


@pytest.mark.parametrize("bytes_sent", [0, 1, 7, 8, 9, 18, 19, 30, 60, 90, 120])
async def test_a_runtime_that_dies_during_registration(handler: Recorder, socket: Path, bytes_sent: int) -> None:
    runtime = FakeRuntime(socket)
    runtime.pods = [api_pb2.PodSandbox(id="p" * 100)]
    runtime.close_after_bytes = bytes_sent
    async with runtime, running(handler, socket):
        await until(handler, "disconnected")
        runtime.close_after_bytes = None
        await until(handler, "synchronized")


async def test_a_runtime_without_validation_is_connected(handler: Recorder, socket: Path) -> None:
    """Each series of attempts begins with a subscription to validation."""
    runtime = FakeRuntime(socket)
    runtime.version = "a-build-of-ours"
    async with runtime, running(handler, socket):
        for validates in False, True, True, True:
            runtime.known_events = (1 << 14 if validates else 1 << 13) - 1
            assert (await until(handler, "connected"))[3] == (Validator.NOT_SEEN if validates else Validator.MISSING)
            await (await runtime.plugin()).close()


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(b"\xff" * 8, id="too long a frame"),
        pytest.param(frames(1, b"\xff" * 10), id="too long a message"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
    ],
)
async def test_reconnects_after_invalid_bytes(
    handler: Recorder, socket: Path, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    left: asyncio.Event = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(nonsense)
        # until the plugin has had enough
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            left.set()

    server = await asyncio.start_unix_server(talk, socket)
    async with running(handler, socket):
        reason = await disconnected(handler)
        assert "violates the protocol" in reason
        assert reason.endswith(f"; perhaps another program listens on {socket}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await left.wait()
        server.close()
        await server.wait_closed()
        socket.unlink()
        async with FakeRuntime(socket):
            await until(handler, "synchronized")
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]
