"""A connection to one device plugin that does what it should not: every way ends in PluginFailed, and in time."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import cast

import grpc
import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, NO_DEVICES, Device, ListedDevices
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin.connection import MAX_ALLOCATION_BYTES, MAX_MESSAGE_BYTES
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltIn, BuiltInSockets
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.threads import in_thread

from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure, StreamEnd
from tests.fakes.virtual_time import virtual_time

RESOURCE = "example.com/fake"
FAILURE = RpcFailure(grpc.StatusCode.INTERNAL, "out\nof order")


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"d0": FakeDevice(), "d1": FakeDevice(healthy=False, numa_nodes=(1, 0))})
    await plugin.start(tmp_path)
    yield plugin
    await plugin.stop()


@pytest.fixture
async def connection(plugin: FakePlugin) -> AsyncIterator[Connection]:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path)) as connection:
        yield connection


def device_lists(connection: Connection) -> aclosing[AsyncGenerator[ListedDevices]]:
    return aclosing(cast("AsyncGenerator[ListedDevices]", connection.device_lists()))


async def first_list(connection: Connection) -> ListedDevices:
    async with device_lists(connection) as lists:
        return await anext(lists)


def test_a_channel_asks_of_grpc_what_any_plugin_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC ignores names that it does not know, and no server here is as particular as those of other languages."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(grpc.aio, "insecure_channel", lambda target, options: asked.update(options, target=target))
    plugin_connection.open_channel(Path("/run/a.sock"), 5)
    assert asked == {
        "target": "unix:/run/a.sock",
        "grpc.default_authority": "localhost",
        "grpc.use_local_subchannel_pool": 1,
        "grpc.max_receive_message_length": 5,
        "grpc.enable_http_proxy": 0,
        "grpc.max_reconnect_backoff_ms": 1000,
        "grpc.http2.lookahead_bytes": plugin_connection._READ_AHEAD_BYTES,
        "grpc.http2.bdp_probe": 0,
    }


@pytest.mark.parametrize(
    ("octets", "asks"),
    [(plugin_connection._SHORT_BYTES, False), (plugin_connection._SHORT_BYTES + 1, True)],
)
async def test_of_a_short_list_nobody_asks_whether_there_is_room(
    octets: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    monkeypatch.setattr(codec, "device_list", lambda octets, known, *, is_built_in, most: found.append(most))
    await plugin_connection._device_list(bytes(octets), NO_DEVICES, asyncio.Lock(), lambda: 7, is_built_in=False)
    assert found == [7 if asks else MAX_DEVICES]


class TestDeviceLists:
    @pytest.mark.kubelet("scenario 44")
    async def test_come_whole_and_in_order(self, plugin: FakePlugin, connection: Connection) -> None:
        async with device_lists(connection) as lists:
            seen = [(await anext(lists)).devices]
            await plugin.set_health("d0", healthy=False)
            seen.append((await anext(lists)).devices)
            await plugin.update({})
            seen.append((await anext(lists)).devices)
        d1 = Device("d1", healthy=False, numa_nodes=(0, 1))
        assert seen == [{"d0": Device("d0"), "d1": d1}, {"d0": Device("d0", healthy=False), "d1": d1}, {}]

    @pytest.mark.parametrize("word", ["", "healthy", "HEALTHY", "Healthy ", "Unknown"])
    async def test_only_the_word_healthy_means_healthy(
        self, plugin: FakePlugin, connection: Connection, word: str
    ) -> None:
        plugin.knobs.raw_list = [api_pb2.Device(ID="d0", health=word)]
        assert not (await first_list(connection)).devices["d0"].healthy

    async def test_a_duplicate_id_is_one_device_and_reported(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.raw_list = [api_pb2.Device(ID="d0", health=word) for word in ("Healthy", "Unhealthy", "Healthy")]
        listed = await first_list(connection)
        assert dict(listed.devices) == {"d0": Device("d0", healthy=False)}
        assert "listed more than once" in listed.id_error

    async def test_absurd_numa_nodes_are_left_out(self, plugin: FakePlugin, connection: Connection) -> None:
        nodes = [api_pb2.NUMANode(ID=node) for node in (3, -1, 2**40, 3, 1)]
        topology = api_pb2.TopologyInfo(nodes=nodes)
        plugin.knobs.raw_list = [api_pb2.Device(ID="d0", health="Healthy", topology=topology)]
        assert (await first_list(connection)).devices["d0"].numa_nodes == (1, 3)

    @pytest.mark.kubelet("weak spot 10")
    async def test_a_hundred_thousand_devices_are_one_message(self, plugin: FakePlugin, connection: Connection) -> None:
        count, name = 100_000, "GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0-{:06}"
        plugin.devices = {name.format(index): FakeDevice() for index in range(count)}
        listed = await first_list(connection)
        assert len(listed.devices) == count
        assert listed.id_error == ""
        # more than the kubelet's bound, where such a plugin is dropped
        assert sum(map(len, listed.devices)) > 4 * 1024 * 1024

    async def test_long_lists_are_decoded_in_a_thread(
        self, plugin: FakePlugin, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        readers: list[threading.Thread] = []

        def read(octets: bytes, known: ListedDevices, *, is_built_in: bool, most: int) -> ListedDevices:
            readers.append(threading.current_thread())
            return device_list(octets, known, is_built_in=is_built_in, most=most)

        device_list = codec.device_list
        monkeypatch.setattr(codec, "device_list", read)
        lengths = []
        async with device_lists(connection) as lists:
            lengths.append(len((await anext(lists)).devices))
            for count in (10_000, 1):
                await plugin.update({f"device-{index:032}": FakeDevice() for index in range(count)})
                lengths.append(len((await anext(lists)).devices))
        assert lengths == [2, 10_000, 1]
        assert [reader is threading.main_thread() for reader in readers] == [True, False, True]

    async def test_an_equal_list_is_the_same_object(self, plugin: FakePlugin, connection: Connection) -> None:
        async with device_lists(connection) as lists:
            first = await anext(lists)
            await plugin.update(dict(plugin.devices))
            assert await anext(lists) is first
            await plugin.update({**plugin.devices, "new": FakeDevice()})
            more = await anext(lists)
        assert more.devices.keys() == {*first.devices, "new"}
        assert all(more.devices[name] is device for name, device in first.devices.items())

    async def test_equal_bytes_are_not_decoded(
        self, plugin: FakePlugin, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoded: list[bytes] = []

        def read(octets: bytes, known: ListedDevices, *, is_built_in: bool, most: int) -> ListedDevices:
            decoded.append(octets)
            return device_list(octets, known, is_built_in=is_built_in, most=most)

        device_list = codec.device_list
        monkeypatch.setattr(codec, "device_list", read)
        async with device_lists(connection) as lists:
            for number in range(6):
                await anext(lists)
                await (plugin.resend() if number != 3 else plugin.set_health("d0", healthy=False))
        assert len(decoded) == 2

    @virtual_time
    async def test_a_flood_is_read_slowly(self) -> None:
        loop, pace = asyncio.get_running_loop(), plugin_connection._Pace(RESOURCE)
        began, lists = loop.time(), 1000
        for _ in range(lists):
            await pace.wait()
        expected = (lists - plugin_connection.LISTS_AT_ONCE) / plugin_connection.LISTS_PER_SECOND
        assert loop.time() - began == pytest.approx(expected)

    async def test_a_flood_holds_the_plugin_back(
        self, plugin: FakePlugin, connection: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        plugin.knobs.is_flooding = True
        read = 0
        async with device_lists(connection) as lists:
            async for _ in lists:
                read += 1
                if read == plugin_connection.LISTS_AT_ONCE + 20:
                    break
        # those on the way are few: the plugin waits
        assert plugin.lists_sent - read <= 200
        assert [record.levelname for record in caplog.records if "too many device lists" in record.message] == [
            "WARNING"
        ]

    async def test_a_message_over_the_limit_fails_that_plugin(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.raw_list = [api_pb2.Device(ID="x" * MAX_MESSAGE_BYTES, health="Healthy")]
        with pytest.raises(PluginFailed, match=r"ListAndWatch.*RESOURCE_EXHAUSTED"):
            await first_list(connection)

    async def test_devices_over_the_limit_are_not_decoded(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.raw_list = [api_pb2.Device(ID=str(number)) for number in range(MAX_DEVICES + 10)]
        listed = await first_list(connection)
        assert (len(listed.devices), listed.is_refused) == (0, True)

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

    async def test_of_a_closed_connection_end(self, connection: Connection) -> None:
        await connection.aclose()
        assert [listed async for listed in connection.device_lists()] == []

    async def test_a_cancelled_reader_is_cancelled(self, plugin: FakePlugin, connection: Connection) -> None:
        async def read() -> None:
            async for _ in connection.device_lists():
                pass

        reading = asyncio.create_task(read())
        await plugin.wait_for_streams(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await plugin.wait_for_streams(0)


class TestAllocate:
    @pytest.mark.kubelet("scenario 45")
    async def test_one_container_and_its_unchanged_response(self, plugin: FakePlugin, connection: Connection) -> None:
        answer = api_pb2.ContainerAllocateResponse(
            envs={"B": "2", "A": "1"}, cdi_devices=[api_pb2.CDIDevice(name="example.com/gpu=0")]
        )
        plugin.knobs.allocate_answer = lambda _: answer
        got = await connection.allocate(("d0", "d1"))
        assert api_pb2.ContainerAllocateResponse.FromString(got.octets) == answer
        assert got.edits == ContainerEdits({"A": "1", "B": "2"}, cdi_devices=("example.com/gpu=0",))
        (call,) = plugin.calls_of("Allocate")
        assert [list(asked.devices_ids) for asked in call.request.container_requests] == [["d0", "d1"]]

    async def test_an_empty_response_for_a_container_is_valid(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.allocate_answer = lambda _: api_pb2.ContainerAllocateResponse()
        assert await connection.allocate(("d0",)) == AllocateResponse(b"", ContainerEdits())

    async def test_no_container_response_is_a_failure(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.allocate_empty = True
        with pytest.raises(PluginFailed, match=r"Allocate.*0 container responses for one container"):
            await connection.allocate(("d0",))

    @pytest.mark.kubelet("weak spot 28")
    @pytest.mark.parametrize(("size", "is_taken"), [(MAX_ALLOCATION_BYTES - 64, True), (MAX_ALLOCATION_BYTES, False)])
    async def test_a_response_has_a_size_limit(
        self, plugin: FakePlugin, connection: Connection, size: int, *, is_taken: bool
    ) -> None:
        plugin.knobs.allocate_answer = lambda _: api_pb2.ContainerAllocateResponse(envs={"A": "x" * size})
        if is_taken:
            assert len((await connection.allocate(("d0",))).octets) > size
        else:
            with pytest.raises(PluginFailed, match=rf"Allocate.*exceeds the limit of {MAX_ALLOCATION_BYTES}"):
                await connection.allocate(("d0",))


class TestPreferred:
    @pytest.mark.kubelet("behaviour 8", "scenario 46")
    async def test_sends_its_arguments(self, plugin: FakePlugin, connection: Connection) -> None:
        assert await connection.preferred(("d0", "d1", "d2"), ("d0",), 2) == ("d0", "d2")
        (call,) = plugin.calls_of("GetPreferredAllocation")
        (asked,) = call.request.container_requests
        assert (list(asked.must_include_deviceIDs), asked.allocation_size) == (["d0"], 2)

    async def test_a_response_with_all_devices_is_valid(self, plugin: FakePlugin, connection: Connection) -> None:
        available = tuple("é" * 120 + str(number) for number in range(1000))
        plugin.knobs.preferred_answer = available
        assert await connection.preferred(available, (), 1) == available

    async def test_a_longer_response_is_a_failure(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.preferred_answer = ["x" * 1000] * 100
        with pytest.raises(PluginFailed, match=r"GetPreferredAllocation.*exceeds the limit"):
            await connection.preferred(("d0", "d1"), (), 1)

    async def test_an_empty_response_prefers_nothing(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.preferred_empty = True
        assert await connection.preferred(("d0",), (), 1) == ()


CALLS: dict[str, Callable[[Connection], Awaitable[object]]] = {
    "Allocate": lambda connection: connection.allocate(("d0",)),
    "GetPreferredAllocation": lambda connection: connection.preferred(("d0",), (), 1),
    "PreStartContainer": lambda connection: connection.pre_start(("d0",)),
}


@pytest.mark.parametrize("call", CALLS)
class TestFailures:
    """Of every call; also when the connection is closed: grpc raises CancelledError then, which ends a task silently."""

    @pytest.fixture
    def gate(self, plugin: FakePlugin) -> asyncio.Event:
        gate = asyncio.Event()
        plugin.knobs.allocate_gate = plugin.knobs.preferred_gate = plugin.knobs.pre_start_gate = gate
        return gate

    @pytest.fixture
    async def in_flight(
        self, plugin: FakePlugin, connection: Connection, gate: asyncio.Event, call: str
    ) -> AsyncIterator[asyncio.Future[object]]:
        asking = asyncio.ensure_future(CALLS[call](connection))
        await plugin.wait_for_calls(call)
        yield asking
        gate.set()

    async def test_an_error_is_a_failure(self, plugin: FakePlugin, connection: Connection, call: str) -> None:
        plugin.knobs.allocate_error = plugin.knobs.preferred_error = plugin.knobs.pre_start_error = FAILURE
        with pytest.raises(PluginFailed, match=rf"{call}.*INTERNAL: out of order"):
            await CALLS[call](connection)

    @pytest.mark.kubelet("weak spot 3", "weak spot 26")
    async def test_a_plugin_that_hangs_times_out(
        self, connection: Connection, gate: asyncio.Event, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        for limit in "ALLOCATE_SECONDS", "PREFERRED_SECONDS", "PRE_START_SECONDS":
            monkeypatch.setattr(plugin_connection, limit, 0.2)
        with pytest.raises(PluginFailed, match=rf"{call}.*DEADLINE_EXCEEDED"):
            await CALLS[call](connection)
        gate.set()

    async def test_an_ended_plugin_is_a_failure(self, plugin: FakePlugin, connection: Connection, call: str) -> None:
        await plugin.stop()
        with pytest.raises(PluginFailed, match=rf"{call}.*UNAVAILABLE"):
            await CALLS[call](connection)

    async def test_a_call_in_flight_fails(
        self, connection: Connection, in_flight: asyncio.Future[object], call: str
    ) -> None:
        await connection.aclose()
        with pytest.raises(PluginFailed, match=rf"{call}.*the connection was closed"):
            await in_flight

    async def test_a_later_call_fails(self, connection: Connection, call: str) -> None:
        await connection.aclose()
        with pytest.raises(PluginFailed, match=rf"{call}.*the connection was closed"):
            await CALLS[call](connection)

    async def test_a_cancelled_caller_is_cancelled(self, in_flight: asyncio.Future[object]) -> None:
        in_flight.cancel()
        with pytest.raises(asyncio.CancelledError):
            await in_flight

    async def test_an_unexpected_exception_fails_one_call_and_is_logged(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
    ) -> None:
        def surprised(*_: object) -> None:
            raise ZeroDivisionError("unexpected")

        with monkeypatch.context() as patched:
            patched.setattr(plugin_connection, "_decoded", surprised)
            with pytest.raises(PluginFailed, match=rf"{call}.*unexpected.*bug in this agent"):
                await CALLS[call](connection)
        assert "ZeroDivisionError" in caplog.text
        await CALLS["Allocate"](connection)


async def test_without_options_nothing_is_left_open(plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[grpc.aio.Channel] = []
    real = plugin_connection.open_channel

    def open_channel(socket: Path, max_message_bytes: int) -> grpc.aio.Channel:
        opened.append(real(socket, max_message_bytes))
        return opened[-1]

    monkeypatch.setattr(plugin_connection, "open_channel", open_channel)
    plugin.knobs.options_error = FAILURE
    with pytest.raises(
        PluginFailed, match=r"GetDevicePluginOptions.*example\.com/fake failed: .*INTERNAL: out of order"
    ):
        await Connection.open(RESOURCE, plugin.socket_path)
    assert [channel.get_state() for channel in opened] == [grpc.ChannelConnectivity.SHUTDOWN]


class Found(BuiltInSockets):
    """Finds these at a path, one after the other."""

    def __init__(self, *found: BuiltIn | None) -> None:
        super().__init__()
        self._found = [*found]

    def find(self, socket: Path, resource_name: str) -> BuiltIn | None:
        return self._found.pop(0)


OWN = BuiltIn(RESOURCE, "built-in x")


@pytest.mark.parametrize(
    ("built_in", "scope"),
    [
        pytest.param(Found(OWN, OWN), "built-in x", id="its own"),
        pytest.param(Found(None), "", id="somebody else's"),
        pytest.param(Found(OWN, None), "", id="replaced while it was dialled"),
        pytest.param(Found(OWN, BuiltIn(RESOURCE, "built-in y")), "", id="by another one of its own"),
        pytest.param(None, "", id="a process without any"),
    ],
)
async def test_the_agents_own_plugin_is_the_file_that_was_dialled(
    plugin: FakePlugin, built_in: BuiltInSockets | None, scope: str
) -> None:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path, built_in=built_in)) as connection:
        assert connection.options.scope == scope


@pytest.mark.parametrize(("built_in", "identity"), [(Found(OWN, OWN), ("c1:3",)), (None, ())])
async def test_what_a_device_is_the_agents_own_plugin_knows(
    plugin: FakePlugin, built_in: BuiltInSockets | None, identity: tuple[str, ...]
) -> None:
    plugin.knobs.raw_list = [*list_to_wire([PluginDevice("d0", identity=("c1:3",))]).devices]
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path, built_in=built_in)) as connection:
        assert (await first_list(connection)).devices["d0"].identity == identity


async def test_a_plugin_that_restarts_on_the_same_path_is_a_new_one(plugin: FakePlugin, tmp_path: Path) -> None:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path)):
        await plugin.stop()
        second = FakePlugin(RESOURCE, {"other": FakeDevice()}, socket_name=plugin.socket_name)
        await second.start(tmp_path)
        async with aclosing(await Connection.open(RESOURCE, second.socket_path)) as connection:
            assert set((await first_list(connection)).devices) == {"other"}
        await second.stop()


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
    found = await asyncio.gather(
        *(plugin_connection._device_list(each, NO_DEVICES, turn, is_built_in=False) for each in lists)
    )
    assert [len(each.devices) for each in found] == [3000] * 6
    assert at_once == [1] * 6
    await plugin_connection._device_list(octets(1000, "x"), NO_DEVICES, turn, is_built_in=False)
    assert len(at_once) == 6, "a short one is decoded sooner than a thread starts"
