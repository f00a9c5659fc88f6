import asyncio
from contextlib import aclosing
from typing import Any

from nodedevice_agent.lib.deviceplugin_server.server import DeviceList
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

ONE, TWO = PluginDevice("a"), PluginDevice("b")


async def test_a_watcher_gets_the_list_at_once_even_an_empty_one() -> None:
    watch: Any = DeviceList().watch()
    async with aclosing(watch):
        assert await anext(watch) == ()


async def test_a_slow_watcher_gets_the_newest_list_only() -> None:
    devices = DeviceList()
    watch: Any = devices.watch()
    async with aclosing(watch):
        await anext(watch)
        devices.publish([ONE])
        devices.publish([ONE, TWO])
        assert await anext(watch) == (ONE, TWO)


async def test_a_change_that_is_undone_is_not_reported() -> None:
    devices = DeviceList()
    watch: Any = devices.watch()
    async with aclosing(watch):
        await anext(watch)
        devices.publish([ONE])
        devices.publish([])
        following = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        devices.publish([TWO])
        assert await following == (TWO,)


async def test_publishing_an_equal_list_changes_nothing() -> None:
    devices = DeviceList()
    assert devices.publish([ONE])
    assert not devices.publish([ONE])
