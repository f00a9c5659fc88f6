"""Which connections a listening socket gets, and which give way; its clients are sockets here, and no handshake ends."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from nodedevice_operator.extender.connections import HANDSHAKE_SECONDS, Connections

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.operator.extender.test_server import ended

pytestmark = virtual_time


class Connected:
    """One that has been taken, and whose handshake is done."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.transport: Any = self

    def abort(self) -> None:
        self.is_aborted = True


class Bench:
    """failures: of the next accepts. taken: with which TLS each began. connected: whose handshake is done; busy: some of them."""

    def __init__(self) -> None:
        self.failures: list[OSError] = []
        self.accepted_at: list[float] = []
        self.taken: list[dict[str, Any]] = []
        self.connected: list[Connected] = []
        self.busy: list[object] = []
        self.context: ssl.SSLContext | None = None
        self.listening = socket.socket()
        self._come: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._clients: list[socket.socket] = []
        server: Any = SimpleNamespace(connections=self.connected)
        self.connections = Connections(
            self.listening, lambda: server, lambda: self.context, lambda each: each in self.busy, most=2
        )

    async def accept(self, _: socket.socket) -> tuple[socket.socket, None]:
        self.accepted_at.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        return await self._come.get(), None

    async def begin(self, _: object, connection: socket.socket, **tls: Any) -> None:
        self.taken.append(tls)
        await asyncio.Event().wait()

    async def client(self) -> socket.socket:
        """Another one that connects."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._clients.append(theirs)
        self._come.put_nowait(ours)
        await later(1)
        return theirs

    def close(self) -> None:
        for each in (self.listening, *self._clients):
            each.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", lambda _, listening: made.accept(listening))
    monkeypatch.setattr(
        asyncio.SelectorEventLoop,
        "connect_accepted_socket",
        lambda _, server, connection, **tls: made.begin(server, connection, **tls),
    )
    yield made
    made.close()


async def test_those_that_are_in_their_handshake_give_way_the_oldest_first(bench: Bench) -> None:
    async with running(bench.connections.work()):
        clients = [await bench.client() for _ in range(3)]
        assert [await ended(each) for each in clients] == [True, False, False]
        clients.append(await bench.client())
        assert [await ended(each) for each in clients] == [True, True, False, False]
    # and none is left behind
    assert [await ended(each) for each in clients] == [True] * 4


async def test_then_those_that_have_no_request(bench: Bench) -> None:
    gone, busy, idle = Connected(), Connected(), Connected()
    gone.transport = None
    bench.connected += [gone, busy, idle]
    bench.busy.append(busy)
    async with running(bench.connections.work()):
        assert not await ended(await bench.client())
    assert [each.is_aborted for each in (gone, busy, idle)] == [False, False, True]


async def test_where_each_has_a_request_the_new_one_is_closed(bench: Bench) -> None:
    bench.connected += [Connected(), Connected()]
    bench.busy = [*bench.connected]
    async with running(bench.connections.work()):
        assert await ended(await bench.client())
    assert bench.taken == []


async def test_as_many_as_may_be_are_left_alone(bench: Bench) -> None:
    bench.connected.append(Connected())
    async with running(bench.connections.work()):
        assert not await ended(await bench.client())
        assert not bench.connected[0].is_aborted


@pytest.mark.parametrize("has_tls", [True, False])
async def test_a_handshake_has_seconds(bench: Bench, has_tls: bool) -> None:
    bench.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_tls else None
    async with running(bench.connections.work()):
        await bench.client()
    seconds = HANDSHAKE_SECONDS if has_tls else None
    assert bench.taken == [{"ssl": bench.context, "ssl_handshake_timeout": seconds}]


async def test_a_handshake_that_fails_leaves_its_place_to_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ConnectionResetError("the client is gone")

    monkeypatch.setattr(bench, "begin", fails)
    async with running(bench.connections.work()):
        for _ in range(3):
            assert await ended(await bench.client())
        assert bench.connections._handshakes == {}


async def test_without_descriptors_it_tries_again_in_a_moment(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.failures = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
    async with running(bench.connections.work()):
        await asyncio.sleep(10)
        assert not bench.listening.getblocking()
    assert [later - sooner for sooner, later in pairwise(bench.accepted_at)] == pytest.approx([0.5] * 3)
    assert [record.message for record in caplog.records] == ["cannot accept a connection; retrying"] * 3
