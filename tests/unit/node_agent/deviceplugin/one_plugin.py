"""A device plugin with two devices, and a connection to it: fixtures for the test files that import them.

from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import grpc
import pytest
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection

from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure

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
