"""A plugin that registers again from the same socket: which of its connections are closed, and when."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.deviceplugin.connection import PluginConnection, open_channel
from nodedevice_agent.deviceplugin.replaced_connections import ReplacedConnections

GPU, NIC = "example.com/gpu", "example.com/nic"
HERE, ELSEWHERE = Path("/run/here.sock"), Path("/run/elsewhere.sock")


class Open:
    """The open connections by endpoint, and the time. Nobody serves their sockets."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.connections: dict[int, PluginConnection] = {}
        self._count = 0
        self._replaced = ReplacedConnections(self.connections, lambda: self.time)

    def connect(self, count: int = 1, name: str = GPU, socket: Path = HERE) -> int:
        """So many more. Returns the newest one's endpoint."""
        for _ in range(count):
            self._count += 1
            channel = open_channel(socket, 1024)
            self.connections[self._count] = PluginConnection(name, socket, channel, PluginOptions())
        return self._count

    async def lists(self, endpoint: int) -> list[int]:
        """That one has sent its first list. Returns those that are closed by that, which are open no more."""
        await self._replaced.close_older(endpoint, self.connections[endpoint])
        closed = [each for each, connection in self.connections.items() if connection.is_closed]
        for each in closed:
            del self.connections[each]
        return closed


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    found = Open()
    yield found
    for connection in found.connections.values():
        await connection.aclose()


async def test_the_older_ones_of_the_same_plugin_are_closed(opened: Open) -> None:
    first = opened.connect()
    opened.connect(socket=ELSEWHERE)
    opened.connect(name=NIC)
    second = opened.connect()
    # what registers meanwhile is newer
    opened.connect()
    assert await opened.lists(first) == []
    assert await opened.lists(second) == [first]


@pytest.mark.parametrize(("seconds", "closed"), [(0.0, []), (9.999, []), (10.0, [2, 3])])
async def test_one_that_registers_again_as_a_stream_ended_keeps_them(
    opened: Open, seconds: float, closed: list[int]
) -> None:
    """Else it would register forever."""
    assert await opened.lists(opened.connect(2)) == [1]
    opened.connect(2)
    opened.time += seconds
    assert await opened.lists(4) == closed
    # another one has had none closed
    assert await opened.lists(opened.connect(2, NIC, ELSEWHERE)) == [5]


async def test_one_that_registers_again_and_again_keeps_a_few(opened: Open) -> None:
    await opened.lists(opened.connect(2))
    most = 8
    # the one that was left, and as many as make one less than the most
    assert await opened.lists(opened.connect(most - 1)) == []
    assert await opened.lists(opened.connect()) == [*range(2, most + 2)]
