"""Device lists of one plugin: what they become, at which rate they are read, how large they may be, and how they end."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, NO_DEVICES, Device, ListedDevices
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.threads import in_thread

from tests.fakes.plugin import FakeDevice, FakePlugin, StreamEnd
from tests.fakes.polling import PATIENCE_SECONDS
from tests.fakes.virtual_time import later, virtual_time
from tests.robustness.fuzz.raw_plugin import RawPlugin
from tests.unit.node_agent.deviceplugin.one_plugin import FAILURE, RESOURCE, device_lists, first_list
from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin


def unconnected(scope: str = "", channel: Any = None) -> Connection:
    return Connection(RESOURCE, Path(), channel, PluginOptions(scope=scope))


def most() -> int:
    return MAX_DEVICES


@pytest.mark.parametrize(("most", "count"), [(2000, 2000), (1999, 0)])
async def test_a_long_list_is_made_where_there_is_room_for_it(most: int, count: int) -> None:
    devices = [PluginDevice(f"device-{number:032}", identity=(f"c1:{number}",)) for number in range(2000)]
    octets = list_to_wire(devices).SerializeToString()
    found = await unconnected("built-in x").decoded(octets, asyncio.Lock(), lambda: most)
    assert (len(found.ids), found.is_refused, found.has_identities) == (count, count == 0, count > 0)


@virtual_time
async def test_long_lists_leave_the_loop_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whatever plugins send would keep the container runtime waiting."""

    async def takes_a_while(_: object) -> ListedDevices:
        await later(0.3)
        return NO_DEVICES

    monkeypatch.setattr(plugin_connection, "in_thread", takes_a_while)
    loop, turn, octets = asyncio.get_running_loop(), asyncio.Lock(), bytes(100_000)
    began = loop.time()
    await asyncio.gather(*(unconnected().decoded(octets, turn, most) for _ in range(3)))
    assert loop.time() - began == pytest.approx(3 * (0.3 + 0.3))


class Flood:
    """A channel to a plugin that always has another list, which is empty."""

    def unary_stream(self, path: str) -> Any:
        return lambda request: self

    async def read(self) -> bytes:
        return b""

    def cancel(self) -> None:
        """It has been read long enough."""


class Garbled(RawPlugin):
    """Its first list is no message, and it sends no other one. has_ended: nobody listens any more."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket)
        self.has_ended = asyncio.Event()

    async def _all(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"\xff"
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()


class TestDeviceLists:
    @pytest.mark.kubelet("scenario 44")
    async def test_come_whole_and_in_order(self, plugin: FakePlugin, connection: Connection) -> None:
        d1 = Device("d1", healthy=False, numa_nodes=(0, 1))
        async with device_lists(connection) as lists:
            assert (await anext(lists)).devices == {"d0": Device("d0"), "d1": d1}
            await plugin.set_health("d0", healthy=False)
            assert (await anext(lists)).devices == {"d0": Device("d0", healthy=False), "d1": d1}
            await plugin.update({})
            assert (await anext(lists)).devices == {}

    @pytest.mark.kubelet("weak spot 10")
    async def test_a_hundred_thousand_devices_are_one_message(self, plugin: FakePlugin, connection: Connection) -> None:
        count, name = 100_000, "GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0-{:06}"
        plugin.devices = {name.format(index): FakeDevice() for index in range(count)}
        listed = await first_list(connection)
        assert len(listed.devices) == count
        assert listed.id_error == ""
        # more than the kubelet's bound, where such a plugin is dropped
        assert sum(map(len, listed.devices)) > 4 * 1024 * 1024

    @virtual_time
    async def test_a_flood_is_read_slowly(self) -> None:
        loop, lists = asyncio.get_running_loop(), unconnected(channel=Flood()).device_lists()
        began = loop.time()
        for _ in range(1000):
            await anext(lists)
        expected = (999 - plugin_connection.LISTS_AT_ONCE) / plugin_connection.LISTS_PER_SECOND
        assert loop.time() - began == pytest.approx(expected)

    async def test_a_flood_holds_the_plugin_back(
        self, plugin: FakePlugin, connection: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        plugin.knobs.is_flooding, read = True, plugin_connection.LISTS_AT_ONCE + 20
        async with device_lists(connection) as lists:
            for _ in range(read):
                await anext(lists)
        # those on the way are few: the plugin waits
        assert plugin.lists_sent - read <= 200
        (line,) = (vars(record) for record in caplog.records if "too many device lists" in record.message)
        assert (line["levelname"], line["resource_name"]) == ("WARNING", RESOURCE)

    async def test_an_invalid_message_fails_that_plugin_which_is_read_no_more(self, tmp_path: Path) -> None:
        plugin = Garbled(tmp_path / "raw.sock")
        await plugin.start()
        async with aclosing(await Connection.open(RESOURCE, plugin.socket)) as connection:
            failed = rf"^ListAndWatch of .*{RESOURCE} failed: the response is not a message of the device plugin API"
            with pytest.raises(PluginFailed, match=failed) as error:
                await first_list(connection)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await plugin.has_ended.wait()
            # whoever has the error has not what was read
            assert error.value.call == "ListAndWatch"
        await plugin.stop()

    async def test_devices_over_the_limit_are_not_decoded(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.raw_list = [api_pb2.Device(ID=str(number)) for number in range(MAX_DEVICES + 10)]
        listed = await first_list(connection)
        # read as far as that shows
        assert (len(listed.devices), listed.is_refused, listed.size.devices < MAX_DEVICES + 10) == (0, True, True)

    @pytest.mark.parametrize(
        "end", ["at_once", "after_first", "never"], ids=["never listed", "after a list", "by its own choice"]
    )
    async def test_end_with_the_stream(self, plugin: FakePlugin, connection: Connection, end: StreamEnd) -> None:
        plugin.knobs.stream_end = end
        seen = 0
        async for _ in connection.device_lists():
            seen += 1
            if end == "never":
                await plugin.end_streams()
        assert seen == (0 if end == "at_once" else 1)

    @pytest.mark.kubelet("scenario 99")
    async def test_fail_with_the_plugins_error(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.stream_end, plugin.knobs.stream_error = "after_first", FAILURE
        with pytest.raises(PluginFailed, match=r"^ListAndWatch of .*example\.com/fake failed: INTERNAL: out of order"):
            async for _ in connection.device_lists():
                pass

    @pytest.mark.kubelet("scenario 100")
    async def test_fail_when_the_process_has_ended(self, plugin: FakePlugin, connection: Connection) -> None:
        async with device_lists(connection) as lists:
            await anext(lists)
            await plugin.stop()
            with pytest.raises(PluginFailed, match="ListAndWatch"):
                await anext(lists)

    async def test_end_when_closed_while_the_reader_continues(self, plugin: FakePlugin, connection: Connection) -> None:
        seen = 0
        async for _ in connection.device_lists():
            seen += 1
            await connection.aclose()
        assert seen == 1
        await plugin.wait_for_streams(0)


async def test_long_lists_of_all_streams_take_turns_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as there are streams would leave the event loop, which answers the container runtime, its share of one."""
    at_once: list[int] = []
    under_way: list[object] = []

    async def counted(decode: Callable[[], ListedDevices]) -> ListedDevices:
        under_way.append(decode)
        at_once.append(len(under_way))
        try:
            return await in_thread(decode)
        finally:
            under_way.remove(decode)

    monkeypatch.setattr(plugin_connection, "in_thread", counted)

    def octets(count: int, prefix: str) -> bytes:
        devices = [api_pb2.Device(ID=f"{prefix}{number}", health="Healthy") for number in range(count)]
        return api_pb2.ListAndWatchResponse(devices=devices).SerializeToString()

    turn = asyncio.Lock()
    lists = [octets(3000, prefix) for prefix in "abcdef"]
    found = await asyncio.gather(*(unconnected().decoded(each, turn, most) for each in lists))
    assert [len(each.devices) for each in found] == [3000] * 6
    assert at_once == [1] * 6
    await unconnected().decoded(octets(1000, "x"), turn, most)
    assert len(at_once) == 6, "a short one is decoded sooner than a thread starts"


async def test_a_plugin_that_restarts_on_the_same_path_is_a_new_one(plugin: FakePlugin, tmp_path: Path) -> None:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path)):
        await plugin.stop()
        second = FakePlugin(RESOURCE, {"other": FakeDevice()}, socket_name=plugin.socket_name)
        await second.start(tmp_path)
        async with aclosing(await Connection.open(RESOURCE, second.socket_path)) as connection:
            assert set((await first_list(connection)).devices) == {"other"}
        await second.stop()


async def test_the_octets_of_a_list_are_not_kept_until_the_next_one(plugin: FakePlugin) -> None:
    """The next one may never come, and a list may have 16 MiB."""
    plugin.devices = {f"GPU-{index:040}": FakeDevice() for index in range(20_000)}
    made = await Connection.open(RESOURCE, plugin.socket_path)
    async with aclosing(made), device_lists(made) as lists:
        assert len((await anext(lists)).ids) == 20_000
        tracemalloc.start()
        try:
            await plugin.update({**plugin.devices, "d": FakeDevice()})
            assert len((await anext(lists)).ids) == 20_001
            waiting = asyncio.ensure_future(anext(lists))
            for _ in range(10):
                await asyncio.sleep(0)
            of_grpc = [tracemalloc.Filter(True, "*/grpc/aio/_call.py")]
            kept = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(of_grpc).traces)
        finally:
            tracemalloc.stop()
        waiting.cancel()
        await asyncio.wait([waiting])
    # a MiB came
    assert kept < 100_000
