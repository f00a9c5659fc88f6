"""A connection that breaks, or a stream that ends, while the plugin serves on: some plugins register once in their life."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.deviceplugin import host, redial
from nodedevice_agent.lib import filesystem

from tests.fakes.hosted_manager import HostedManager
from tests.fakes.plugin import FakePlugin, RpcFailure, StreamEnd
from tests.fakes.polling import until
from tests.unit.node_agent.deviceplugin.conftest import Start, remembered

NAME = "example.com/once"
VIA = "via.sock"


class Line:
    """A socket beside the plugin's, by which its connections can be cut."""

    def __init__(self) -> None:
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server

    async def start(self, folder: Path, to: Path) -> None:
        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while octets := await reader.read(65536):
                writer.write(octets)
            writer.close()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_unix_connection(str(to))
            self._open |= {writer, far_writer}
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer), return_exceptions=True)

        self._server = await asyncio.start_unix_server(take, str(folder / VIA))

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redial, "REDIAL_SECONDS", 0.0)
    monkeypatch.setattr("nodedevice_common.tasks.FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def plugin(start: Start) -> FakePlugin:
    return await start(NAME)


@pytest.fixture
async def line(manager: HostedManager, plugin: FakePlugin) -> AsyncIterator[Line]:
    """By which the plugin is registered."""
    line = Line()
    await line.start(manager.plugin_dir, plugin.socket_path)
    await plugin.register(endpoint=VIA)
    await manager.until(lambda: manager.available(NAME) == 1)
    yield line
    await line.stop()


async def test_it_is_dialled_again(manager: HostedManager, plugin: FakePlugin, line: Line) -> None:
    for _ in range(3):
        line.cut()
        await manager.until(lambda: manager.available(NAME) == 0)
        await manager.until(lambda: manager.available(NAME) == 1)
    # and is followed
    await plugin.set_health("d0", healthy=False)
    await manager.until(lambda: manager.available(NAME) == 0)
    assert len(plugin.calls_of("ListAndWatch")) == 4


async def test_it_is_dialled_until_it_answers(
    manager: HostedManager, plugin: FakePlugin, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.knobs.options_error = RpcFailure()
    line.cut()
    await plugin.wait_for_calls("GetDevicePluginOptions", 4)
    assert manager.available(NAME) == 0
    plugin.knobs.options_error = None
    await manager.until(lambda: manager.available(NAME) == 1)
    (failed,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (vars(failed)["task"], vars(failed)["resource_name"]) == ("plugin connection", NAME)


async def test_one_of_which_nobody_knows_whether_it_serves_is_dialled(
    manager: HostedManager, plugin: FakePlugin, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this process has no free descriptor for a while."""
    refusals = [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(3)]

    def is_served(path: Path) -> bool:
        if refusals:
            raise refusals.pop()
        return filesystem.is_served(path)

    monkeypatch.setattr(redial, "is_served", is_served)
    line.cut()
    await manager.until(lambda: manager.available(NAME) == 0)
    await manager.until(lambda: manager.available(NAME) == 1)
    assert refusals == []


async def test_one_that_serves_no_more_is_not(manager: HostedManager, plugin: FakePlugin, line: Line) -> None:
    await line.stop()
    await manager.until(lambda: manager.available(NAME) == 0)
    await until(lambda: remembered(manager.folder) == {})


async def test_one_that_has_registered_meanwhile_is_not(
    manager: HostedManager, plugin: FakePlugin, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redial, "REDIAL_SECONDS", 0.2)
    line.cut()
    await manager.until(lambda: manager.available(NAME) == 0)
    await plugin.register(endpoint=VIA)
    await manager.until(lambda: manager.available(NAME) == 1)
    await until(lambda: [*remembered(manager.folder).values()] == [NAME])
    assert len(plugin.calls_of("ListAndWatch")) == 2


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED, None])
async def test_one_that_ends_its_stream_is_dialled_again(
    manager: HostedManager, plugin: FakePlugin, line: Line, code: grpc.StatusCode | None
) -> None:
    """And again, whatever the stream ends with."""
    plugin.knobs.stream_error = RpcFailure(code) if code else None
    for streams in (2, 3):
        await plugin.end_streams()
        await plugin.wait_for_calls("ListAndWatch", streams)
        await manager.until(lambda: manager.available(NAME) == 1)


@pytest.mark.usefixtures("line")
@pytest.mark.parametrize("end", ["at_once", "after_first"])
async def test_one_whose_streams_all_end_is_dialled_ever_later(
    manager: HostedManager, plugin: FakePlugin, pauses: list[int], monkeypatch: pytest.MonkeyPatch, end: StreamEnd
) -> None:
    """And is dialled once at a time, however often it has registered; soon again after a stream that has lasted."""
    plugin.knobs.stream_end = end
    for _ in range(3):
        await plugin.register(endpoint=VIA)
    await plugin.end_streams()
    await plugin.wait_for_calls("ListAndWatch", 12)
    assert pauses[-4:] == [*range(pauses[-4], pauses[-4] + 4)]
    plugin.knobs.stream_end = "never"
    await manager.until(lambda: manager.available(NAME) == 1)
    await until(lambda: [*remembered(manager.folder).values()] == [NAME])
    for module in host, redial:
        monkeypatch.setattr(module, "MOST_REDIAL_SECONDS", -1.0)
    streams = len(plugin.calls_of("ListAndWatch"))
    await plugin.end_streams()
    await plugin.wait_for_calls("ListAndWatch", streams + 1)
    assert pauses[-1] == 0


async def test_a_name_that_has_lost_its_place_is_not_dialled(
    manager: HostedManager, plugin: FakePlugin, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redial, "REDIAL_SECONDS", 0.2)
    await plugin.end_streams()
    await manager.until(lambda: manager.available(NAME) == 0)
    manager.manager.table.displaced([NAME], "example.com/other")
    manager.host.settle()
    await until(lambda: remembered(manager.folder) == {})
    assert len(plugin.calls_of("ListAndWatch")) == 1
