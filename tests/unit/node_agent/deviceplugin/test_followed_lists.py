"""The lists of one connection on their way to the device manager: what is logged, what the first one does, and whose turn it is."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin import connection as plugin_connection
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.device_lists import DeviceLists
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.polling import PATIENCE_SECONDS, until
from tests.unit.node_agent.deviceplugin.one_plugin import RESOURCE
from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin


class Node:
    """A device manager and one connection, as endpoint 1. lists: how many it got. firsts: the connections that were said to have
    sent their first list.
    """

    def __init__(self, connection: PluginConnection) -> None:
        now = asyncio.get_running_loop().time
        self.manager = DeviceManager(now())
        self.connections, self._connection = {1: connection}, connection
        self.lists = 0
        self.firsts: list[tuple[int, PluginConnection]] = []
        self._follower = DeviceLists(self.manager, self.connections, self._settle, now, self._start, self._is_first)
        self.manager.connected(RESOURCE, 1, connection.options, now())

    async def follow(self) -> None:
        await self._follower.follow(1, self._connection)

    async def until_listed(self, count: int) -> None:
        await until(lambda: self.lists == count)

    def _settle(self) -> None:
        self.lists += 1

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        raise AssertionError("no list is refused here")

    async def _is_first(self, endpoint: int, connection: PluginConnection) -> None:
        self.firsts.append((endpoint, connection))


@pytest.fixture
async def node(connection: PluginConnection) -> Node:
    return Node(connection)


def listed(*device_ids: str) -> list[api_pb2.Device]:
    return [api_pb2.Device(ID=device_id, health="Healthy") for device_id in device_ids]


async def test_one_list_of_a_connection_is_the_first(
    node: Node, plugin: FakePlugin, connection: PluginConnection
) -> None:
    async with background(node.follow()):
        await node.until_listed(1)
        for count in (2, 3):
            plugin.knobs.raw_list = listed(*"abc"[:count])
            await plugin.resend()
            await node.until_listed(count)
    assert node.firsts == [(1, connection)]


async def test_each_new_error_of_a_list_is_logged(
    node: Node, plugin: FakePlugin, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [("", "", "a"), ("", "", "a", "b"), ("a",), ("", "", "a"), ("", "", "\n", "\n", "a", "b")]
    plugin.knobs.raw_list = listed(*lists[0])
    async with background(node.follow()):
        await node.until_listed(1)
        for count, device_ids in enumerate(lists[1:], start=2):
            plugin.knobs.raw_list = listed(*device_ids)
            await plugin.resend()
            await node.until_listed(count)
    lines = [vars(record) for record in caplog.records if record.message == "invalid device list"]
    assert {line["resource_name"] for line in lines} == {RESOURCE}
    # the same error is not logged again before there was a list without it
    assert [line["devices"] for line in lines] == [2, 2, 4]
    assert ["1 listed more than once" in line["error"] for line in lines] == [True, True, False]
    assert "2 listed more than once and counted once ('escaped:', 'escaped:%0A')" in lines[2]["error"]


async def test_of_a_name_that_has_lost_its_place_no_more_lists_are_read(node: Node) -> None:
    # the connection is about to be closed
    node.connections.clear()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await node.follow()
    assert (node.lists, node.firsts) == (1, [])


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], asyncio.Event]:
    """Long lists that are being read, one after the other, and an event that lets them be read."""
    begun: list[object] = []
    may_be_read = asyncio.Event()

    async def in_thread(read: Callable[[], ListedDevices]) -> ListedDevices:
        begun.append(read)
        await may_be_read.wait()
        return read()

    monkeypatch.setattr(plugin_connection, "in_thread", in_thread)
    return begun, may_be_read


async def test_long_lists_of_two_plugins_are_read_one_at_a_time(
    tmp_path: Path, reading: tuple[list[object], asyncio.Event]
) -> None:
    begun, may_be_read = reading
    devices = {f"device-{number:032}": FakeDevice() for number in range(1000)}
    plugins = [FakePlugin(f"example.com/{name}", devices) for name in "ab"]
    async with hosted(tmp_path) as manager:
        for plugin in plugins:
            await plugin.join(manager.plugin_dir)
        # both lists have come
        await until(lambda: all(each.digest for each in manager.host._connections.values()))
        assert len(begun) == 1
        may_be_read.set()
        await manager.until(lambda: all(manager.available(each.resource_name) == 1000 for each in plugins))
        assert len(begun) == 2
    for plugin in plugins:
        await plugin.stop()
