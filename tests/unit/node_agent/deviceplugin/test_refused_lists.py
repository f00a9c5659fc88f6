"""Lists that are refused for lack of room, on real sockets: nothing is made of them, and they are taken when there is room."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.resources import list_limit
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin import connection, device_lists, held_lists
from nodedevice_agent.deviceplugin.held_lists import HeldList, hold

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.polling import until

Pair = tuple[FakePlugin, FakePlugin]
FIRST, SECOND, THIRD = "one.example.com/a", "two.example.com/b", "three.example.com/c"


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedManager]:
    monkeypatch.setattr(list_limit, "MAX_DEVICES", 1000)
    async with hosted(tmp_path) as manager:
        yield manager


def some(count: int, prefix: str = "d") -> dict[str, FakeDevice]:
    return {f"{prefix}{index}": FakeDevice() for index in range(count)}


@pytest.fixture
async def plugins() -> AsyncIterator[Pair]:
    """There is room for one of their lists, and they are not registered."""
    pair = FakePlugin(FIRST, some(600)), FakePlugin(SECOND, some(500, "d" * 100))
    yield pair
    for plugin in pair:
        await plugin.stop()


def total(manager: HostedManager, name: str) -> int:
    return len(manager.manager.resources[name].devices)


async def test_it_is_taken_once_there_is_room_though_its_plugin_sent_it_once(
    manager: HostedManager, plugins: Pair
) -> None:
    first, second = plugins
    await manager.register(first)
    await manager.register(second)
    assert (total(manager, FIRST), total(manager, SECOND)) == (600, 0)
    assert manager.manager.resources[SECOND].listed.is_refused
    await first.stop()
    await manager.until(lambda: total(manager, SECOND) == 500)
    assert not manager.manager.resources[SECOND].listed.is_refused
    assert second.lists_sent == 1
    # the same list again is no longer a refused one
    await second.resend()
    await second.wait_for_lists(2)
    await second.update(some(499))
    await manager.until(lambda: total(manager, SECOND) == 499)


async def test_room_that_comes_before_it_is_held_is_used(
    manager: HostedManager, plugins: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plugins
    is_holding, may_hold = asyncio.Event(), asyncio.Event()

    async def held(lists: dict[int, HeldList], endpoint: int, resource_name: str, octets: bytes) -> bool:
        is_holding.set()
        await may_hold.wait()
        return await hold(lists, endpoint, resource_name, octets)

    await manager.register(first)
    monkeypatch.setattr(device_lists, "hold", held)
    await second.join(manager.plugin_dir)
    await is_holding.wait()
    await first.update(some(400))
    await manager.until(lambda: total(manager, FIRST) == 400)
    may_hold.set()
    await manager.until(lambda: total(manager, SECOND) == 500)
    assert second.lists_sent == 1


async def test_one_that_is_no_longer_the_latest_is_not_taken(
    manager: HostedManager, plugins: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it was already being read when the next one came."""
    is_reading, may_be_read = asyncio.Event(), asyncio.Event()

    async def in_thread(read: Callable[[], ListedDevices]) -> ListedDevices:
        is_reading.set()
        await may_be_read.wait()
        return read()

    first, second = plugins
    await manager.register(first)
    await manager.register(second)
    monkeypatch.setattr(connection, "in_thread", in_thread)
    await first.update(some(400))
    await is_reading.wait()
    await second.update(some(10))
    await manager.until(lambda: total(manager, SECOND) == 10)
    may_be_read.set()
    # the older list has been read when this one has come
    await first.update(some(401))
    await manager.until(lambda: total(manager, FIRST) == 401)
    assert total(manager, SECOND) == 10


async def test_what_is_held_has_a_bound_for_each_domain_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lists that nothing compresses."""
    kib = bytes(1024)
    monkeypatch.setattr(zlib, "compress", lambda octets, _: octets)
    monkeypatch.setattr(held_lists, "MAX_HELD_BYTES", 4 * 1024)
    monkeypatch.setattr(held_lists, "MAX_HELD_BYTES_OF_DOMAIN", 3 * 1024)
    held: dict[int, HeldList] = {}
    for endpoint in range(5):
        await hold(held, endpoint, FIRST, kib)
    assert [endpoint in held for endpoint in range(5)] == [True, True, True, False, False]
    await hold(held, 5, SECOND, kib)
    await hold(held, 6, THIRD, kib)
    assert held.keys() == {0, 1, 2, 5}
    # one list of a connection, the latest; none of one that has ended
    await hold(held, 0, FIRST, kib[:10])
    del held[1]
    await hold(held, 6, THIRD, kib)
    assert held[0][1] == kib[:10]
    assert held.keys() == {0, 2, 5, 6}


async def test_a_list_that_cannot_be_held_says_so(
    manager: HostedManager, plugins: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_lists, "MAX_HELD_BYTES", 10)
    first, second = plugins
    await manager.register(first)
    await manager.register(second)
    resource = manager.manager.resources[SECOND]
    await until(lambda: resource.listed.id_error.endswith("stop other plugins, and restart it then"))
    await first.stop()
    await until(lambda: not manager.manager.resources[FIRST].is_live)
    assert total(manager, SECOND) == 0
    await second.resend()
    await manager.until(lambda: total(manager, SECOND) == 500)
