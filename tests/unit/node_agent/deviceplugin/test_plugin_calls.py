"""Calls to one device plugin that does what it should not: every way ends in PluginFailed, and in time."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin.codec import MAX_ENTRIES
from nodedevice_agent.deviceplugin.connection import MAX_ALLOCATION_BYTES
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.plugin import FakePlugin, RpcFailure
from tests.unit.node_agent.deviceplugin.one_plugin import FAILURE, RESOURCE
from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin

FAILED = f"of the device plugin of {RESOURCE} failed"


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

    async def test_of_several_responses_the_first_one_counts(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.allocate_more = 1
        assert set((await connection.allocate(("d0",))).edits.envs) == {"FAKE_DEVICES"}

    async def test_no_container_response_is_a_failure(self, plugin: FakePlugin, connection: Connection) -> None:
        plugin.knobs.allocate_empty = True
        with pytest.raises(PluginFailed, match=r"Allocate.*0 container responses for one container"):
            await connection.allocate(("d0",))

    @pytest.mark.kubelet("weak spot 28")
    @pytest.mark.parametrize(
        ("size", "entries", "problem"),
        [
            pytest.param(MAX_ALLOCATION_BYTES - 64, 2, "", id="long"),
            pytest.param(MAX_ALLOCATION_BYTES, 2, f"the limit of {MAX_ALLOCATION_BYTES}", id="too long"),
            pytest.param(1, MAX_ENTRIES, "", id="many entries"),
            pytest.param(
                1, MAX_ENTRIES + 1, f"{MAX_ENTRIES + 1} entries, .* limit of {MAX_ENTRIES}", id="too many entries"
            ),
        ],
    )
    async def test_a_response_has_a_bounded_size_and_so_many_entries(
        self, plugin: FakePlugin, connection: Connection, size: int, entries: int, problem: str
    ) -> None:
        """A hundred thousand empty ones take less than the size limit, and 0.2 s of the event loop."""
        envs, files = {"A": "x" * size}, [api_pb2.DeviceSpec()] * (entries - 2)
        cdi_devices = [api_pb2.CDIDevice(name="a.com/b=c")]
        answer = api_pb2.ContainerAllocateResponse(envs=envs, devices=files, cdi_devices=cdi_devices)
        plugin.knobs.allocate_answer = lambda _: answer
        if not problem:
            assert (await connection.allocate(("d0",))).edits.envs == envs
            return
        with pytest.raises(PluginFailed, match=rf"^Allocate {FAILED}: .*{problem}"):
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

    async def test_an_error_is_a_failure(self, plugin: FakePlugin, connection: Connection, call: str) -> None:
        plugin.knobs.allocate_error = plugin.knobs.preferred_error = plugin.knobs.pre_start_error = FAILURE
        with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: INTERNAL: out of order"):
            await CALLS[call](connection)

    @pytest.mark.kubelet("weak spot 3", "weak spot 26")
    async def test_a_plugin_that_hangs_times_out(
        self, connection: Connection, gate: asyncio.Event, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        for limit in "ALLOCATE_SECONDS", "PREFERRED_SECONDS", "PRE_START_SECONDS":
            monkeypatch.setattr(plugin_connection, limit, 0.2)
        with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: DEADLINE_EXCEEDED"):
            await CALLS[call](connection)
        gate.set()

    async def test_an_ended_plugin_is_a_failure(self, plugin: FakePlugin, connection: Connection, call: str) -> None:
        await plugin.stop()
        with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: UNAVAILABLE"):
            await CALLS[call](connection)

    async def test_a_call_in_flight_and_a_later_one_fail(
        self, plugin: FakePlugin, connection: Connection, gate: asyncio.Event, call: str
    ) -> None:
        in_flight = asyncio.ensure_future(CALLS[call](connection))
        await plugin.wait_for_calls(call)
        await connection.aclose()
        for asked in (in_flight, CALLS[call](connection)):
            with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: the connection was closed"):
                await asked
        gate.set()

    async def test_a_plugin_that_is_silent_is_not_called(
        self, plugin: FakePlugin, connection: Connection, call: str
    ) -> None:
        for _ in range(2):
            connection.answers.missed()
        with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: it does not respond"):
            await CALLS[call](connection)
        connection.answers.came()
        await CALLS[call](connection)
        assert len(plugin.calls_of(call)) == 1

    async def test_a_deadline_that_the_plugin_itself_has_missed_is_an_answer(
        self, plugin: FakePlugin, connection: Connection, call: str
    ) -> None:
        late = RpcFailure(grpc.StatusCode.DEADLINE_EXCEEDED, "the driver was late")
        plugin.knobs.allocate_error = plugin.knobs.preferred_error = plugin.knobs.pre_start_error = late
        for _ in range(3):
            with pytest.raises(PluginFailed, match=rf"^{call} {FAILED}: DEADLINE_EXCEEDED: the driver was late"):
                await CALLS[call](connection)
        assert len(plugin.calls_of(call)) == 3
