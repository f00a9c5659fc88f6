"""A connection to one device plugin: how it is opened, and whose plugin is at its other end."""

import asyncio
import tracemalloc
from contextlib import aclosing
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltIn, BuiltInSockets
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.unit.node_agent.deviceplugin.one_plugin import FAILURE, RESOURCE, device_lists, first_list
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin


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
        pytest.param(None, "", id="a process without any"),
    ],
)
async def test_the_agents_own_plugin_is_the_file_that_was_dialled(
    plugin: FakePlugin, built_in: BuiltInSockets | None, scope: str
) -> None:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path, built_in=built_in)) as connection:
        assert connection.options.scope == scope


@pytest.mark.parametrize("found", [None, BuiltIn(RESOURCE, "built-in y")], ids=["ended", "by another one of its own"])
async def test_a_built_in_plugin_that_ends_while_it_is_dialled_does_not_register(
    plugin: FakePlugin, found: BuiltIn | None
) -> None:
    """It would count as a foreign plugin, whose NodeDevice outlives the configuration."""
    with pytest.raises(PluginFailed, match="replaced or removed"):
        await Connection.open(RESOURCE, plugin.socket_path, built_in=Found(OWN, found))


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
