"""Which connections a listening socket gets, and which give way; its clients are sockets here, and no handshake ends by itself."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from nodedevice_operator.extender.admission import MOST_HANDSHAKES_OF_PEER, MOST_WAITING_OF_PEER
from nodedevice_operator.extender.connections import HANDSHAKE_SECONDS, Connections
from nodedevice_operator.extender.metrics import ExtenderMetrics

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.operator.extender.test_server import ended

pytestmark = virtual_time

HELLO = b"\x16\x03\x01"
SCHEDULER, STRANGER = "10.0.0.1", "10.0.0.2"


class Connected(asyncio.Transport):
    """One that has been taken, and whose handshake is done."""

    def __init__(self) -> None:
        super().__init__()
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Bench:
    """A port. failures: of the next accepts. taken: with which TLS each handshake began; outcomes: how those that begin next end.

    connected: whose handshake is done; busy: those of them with a request.
    """

    def __init__(self) -> None:
        self.failures: list[OSError] = []
        self.accepted_at: list[float] = []
        self.taken: list[dict[str, Any]] = []
        self.outcomes: list[Connected | OSError] = []
        self.connected: list[Connected] = []
        self.busy: list[object] = []
        self.not_allowed: list[object] = []
        self.tls: ssl.SSLContext | None = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.listening = socket.socket()
        self.metrics = ExtenderMetrics()
        self._come: asyncio.Queue[tuple[socket.socket, tuple[str, int]]] = asyncio.Queue()
        self._clients: list[socket.socket] = []

    def connections(self, most: int = 2) -> Connections:
        return Connections(self.listening, self, self.metrics, most)

    def busy_ones(self) -> None:
        """As many as there may be are connected, each with a request."""
        self.connected += [Connected(), Connected()]
        self.busy = [*self.connected]

    def protocol(self) -> Any:
        return None

    def open_connections(self) -> Any:
        return [SimpleNamespace(transport=each, is_busy=each in self.busy) for each in self.connected]

    async def wait_for_change(self) -> None:
        await later(0.01)

    def changed(self) -> None:
        pass

    def context(self) -> ssl.SSLContext | None:
        return self.tls

    def is_allowed(self, transport: object) -> bool:
        return transport not in self.not_allowed

    async def accept(self, _: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        self.accepted_at.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        return await self._come.get()

    async def begin(self, _: object, connection: socket.socket, **tls: Any) -> tuple[Connected, None]:
        self.taken.append(tls)
        if not self.outcomes:
            await asyncio.Event().wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        self.connected.append(outcome)
        self._clients.append(connection)
        return outcome, None

    async def client(self, peer: str = SCHEDULER, sent: bytes = HELLO) -> socket.socket:
        """Another one that connects, and has been seen."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        theirs.send(sent)
        self._clients.append(theirs)
        self._come.put_nowait((ours, (peer, 4711)))
        await later(0.01)
        return theirs

    def rejected(self) -> dict[str, float]:
        """By reason."""
        [family] = self.metrics.rejected.collect()
        return {each.labels["reason"]: each.value for each in family.samples if each.name.endswith("_total")}

    def close(self) -> None:
        for each in (self.listening, *self._clients):
            each.close()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made, loop = Bench(), asyncio.SelectorEventLoop
    monkeypatch.setattr(loop, "sock_accept", lambda _, listening: made.accept(listening))
    monkeypatch.setattr(loop, "connect_accepted_socket", lambda _, *given, **tls: made.begin(*given, **tls))
    yield made
    made.close()


async def test_handshakes_of_one_address_give_way_the_oldest_first(bench: Bench) -> None:
    async with running(bench.connections().work()):
        other = await bench.client(SCHEDULER)
        clients = [await bench.client(STRANGER) for _ in range(MOST_HANDSHAKES_OF_PEER + 2)]
        assert [await ended(each) for each in (*clients[:3], other)] == [True, True, False, False]
        assert bench.rejected() == {"crowded": 2}
    # and none is left behind
    assert all([await ended(each) for each in (*clients, other)])


async def test_who_sends_nothing_gets_no_handshake_and_ends_in_time(bench: Bench) -> None:
    async with running(bench.connections().work()):
        clients = [await bench.client(STRANGER, b"") for _ in range(MOST_WAITING_OF_PEER + 1)]
        assert [await ended(each) for each in clients[:2]] == [True, False]
        await later(HANDSHAKE_SECONDS)
        assert all([await ended(each) for each in clients])
        assert (bench.taken, bench.rejected()) == ([], {"crowded": 1, "late": MOST_WAITING_OF_PEER})
        slow = await bench.client(STRANGER, b"")
        slow.send(HELLO)
        await later(HANDSHAKE_SECONDS)
        assert len(bench.taken) == 1, "and it is not late"
        assert not await ended(slow)


async def test_who_has_gone_gets_no_handshake_and_counts_nothing(bench: Bench) -> None:
    async with running(bench.connections().work()):
        (await bench.client(sent=b"")).close()
        await later(1)
    assert (bench.taken, bench.rejected()) == ([], {})


async def test_the_newest_gives_way_where_all_others_have_got_a_request_meanwhile(bench: Bench) -> None:
    bench.connected += [Connected(), Connected()]
    new = Connected()
    async with running(bench.connections().work()):
        client = await bench.client(sent=b"")
        bench.busy = [*bench.connected]
        bench.outcomes.append(new)
        client.send(HELLO)
        await later(0.1)
    assert new.is_aborted
    assert bench.rejected() == {"busy": 1}


@pytest.mark.parametrize(
    ("failure", "counted"),
    [
        (ConnectionResetError("the client is gone"), {}),
        (ConnectionAbortedError("SSL handshake is taking longer than 5 seconds"), {"late": 1}),
        (ssl.SSLError("peer did not return a certificate"), {"handshake": 1}),
    ],
)
async def test_a_handshake_that_fails_is_counted_by_its_reason(
    bench: Bench, failure: OSError, counted: dict[str, float]
) -> None:
    bench.outcomes.append(failure)
    async with running(bench.connections().work()):
        assert await ended(await bench.client())
    assert bench.rejected() == counted


async def test_a_certificate_without_an_allowed_name_is_answered_and_closed(bench: Bench) -> None:
    wrong, idle = Connected(), Connected()
    bench.connected.append(idle)
    bench.not_allowed.append(wrong)
    bench.outcomes.append(wrong)
    async with running(bench.connections(most=1).work()):
        await bench.client(STRANGER)
        assert not wrong.is_aborted, "there is time for an answer"
        await later(2)
        assert wrong.is_aborted
    assert not idle.is_aborted
    assert bench.rejected() == {"name": 1}


async def test_what_is_no_tls_gets_no_handshake_and_a_bounded_number_of_lines(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(bench.connections().work()):
        clients = [await bench.client(STRANGER, b"GET") for _ in range(100)]
        assert all([await ended(each) for each in clients])
    assert (bench.taken, bench.rejected()) == ([], {"handshake": 100})
    lines = [vars(record) for record in caplog.records if record.message == "connection rejected"]
    assert 0 < len(lines) < 20
    assert (lines[0]["address"], lines[0]["reason"]) == (STRANGER, "handshake")


async def test_without_descriptors_it_tries_again_in_a_moment(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.failures = [OSError(errno.EMFILE, "Too many open files") for _ in range(30)]
    async with running(bench.connections().work()):
        await asyncio.sleep(20)
        assert not bench.listening.getblocking()
    assert [later - sooner for sooner, later in pairwise(bench.accepted_at)] == pytest.approx([0.5] * 30)
    assert 0 < sum(record.message == "cannot accept a connection; retrying" for record in caplog.records) < 15


@pytest.mark.parametrize("has_tls", [True, False])
async def test_where_each_has_a_request_the_new_one_waits(bench: Bench, has_tls: bool) -> None:
    bench.tls = bench.tls if has_tls else None
    bench.busy_ones()
    bench.outcomes.append(Connected())
    async with running(bench.connections().work()):
        client = await bench.client()
        await later(5)
        assert (bench.taken, await ended(client)) == ([], False)
        bench.busy.pop()
        await later(0.1)
        assert len(bench.taken) == 1
        # the idle one gave way to it
        assert [each.is_aborted for each in bench.connected] == [False, True, False]


async def test_a_client_that_waits_is_closed_at_the_end(bench: Bench) -> None:
    bench.busy_ones()
    async with running(bench.connections().work()):
        client = await bench.client()
    assert await ended(client)
