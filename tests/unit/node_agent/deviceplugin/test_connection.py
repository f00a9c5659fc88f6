"""A connection to one device plugin: how it is opened, and whose plugin is at its other end."""

import asyncio
import tracemalloc
from contextlib import aclosing
from pathlib import Path

import pytest
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltIn, BuiltInSockets

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.unit.node_agent.deviceplugin.one_plugin import RESOURCE, device_lists, first_list
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin


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
