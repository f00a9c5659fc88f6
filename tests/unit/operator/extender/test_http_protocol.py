"""One connection of the extender's port: which bytes belong to which request, and when it ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from nodedevice_operator.extender.http_protocol import HttpConnection, Response

from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time
_SECONDS_OF_A_VERB = 60.0


class Echo:
    """Responds with the body of each request, after a while. ended: when connections ended. received: in how long bodies came."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.ended, self.received = seconds, list[float](), list[float]()
        self._work = set[asyncio.Task[None]]()

    def connected(self, connection: HttpConnection) -> None: ...

    def lost(self, connection: HttpConnection) -> None:
        self.ended.append(asyncio.get_running_loop().time())

    def changed(self) -> None: ...

    def refusal(self, connection: HttpConnection, method: str, path: str) -> Response | None:
        return None if path == "/bind" else Response(404, b"")

    async def respond(self, path: str, body: bytes, began: float) -> Response:
        self.received.append(asyncio.get_running_loop().time() - began)
        await asyncio.sleep(self.seconds)
        return Response(200, body)

    def rejected(self, path: str) -> None: ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.add(asyncio.ensure_future(work))


class Peer(asyncio.Transport):
    """Delivers what is sent to the connection as asyncio does. got: what it responded."""

    def __init__(self, handler: Echo | None = None, buffer: memoryview | None = None) -> None:
        super().__init__()
        self.got, self._is_closing, self.handler = b"", False, handler or Echo()
        self._connection = HttpConnection(self.handler, buffer or memoryview(bytearray(1024)))
        self._connection.connection_made(self)

    def send(self, octets: bytes) -> None:
        self._connection.get_buffer(-1)[: len(octets)] = octets
        self._connection.buffer_updated(len(octets))

    def write(self, data: Any) -> None:
        self.got += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._connection.connection_lost(None)

    abort = close


def request(body: bytes, path: bytes = b"/bind") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


async def test_connections_that_share_a_buffer_keep_their_own_bytes() -> None:
    handler, buffer = Echo(), memoryview(bytearray(1024))
    one, other = Peer(handler, buffer), Peer(handler, buffer)
    whole = request(b"abcdef" * 20), request(b"ghijkl" * 20)
    for piece in range(0, len(whole[0]), 7):
        one.send(whole[0][piece : piece + 7])
        other.send(whole[1][piece : piece + 7])
    await asyncio.sleep(0.01)
    assert one.got.partition(b"\r\n\r\n")[2] == b"abcdef" * 20
    assert other.got.partition(b"\r\n\r\n")[2] == b"ghijkl" * 20


async def test_a_slow_verb_is_not_cut_off_and_an_idle_connection_ends() -> None:
    handler, loop = Echo(_SECONDS_OF_A_VERB), asyncio.get_running_loop()
    peer = Peer(handler)
    for _ in range(3):
        began, peer.got = loop.time(), b""
        peer.send(request(b"{")[:-1])
        await asyncio.sleep(5)
        peer.send(b"{")
        await asyncio.sleep(_SECONDS_OF_A_VERB + 1)
        assert peer.got.startswith(b"HTTP/1.1 200"), "the limit is of the request, not of the response"
        await asyncio.sleep(100)
        assert not handler.ended
    responded = began + 5 + _SECONDS_OF_A_VERB
    await asyncio.sleep(60)
    assert [round(ended - responded) for ended in handler.ended] == [120]


async def test_a_request_that_stops_halfway_is_refused_in_time() -> None:
    peer = Peer()
    peer.send(request(b"{}"))
    await asyncio.sleep(50)
    peer.send(request(b"{}")[:-1])
    await asyncio.sleep(9.9)
    assert not peer.handler.ended
    peer.got = b""
    await asyncio.sleep(0.2)
    assert (peer.got[:12], b"did not arrive" in peer.got) == (b"HTTP/1.1 408", True)
    await asyncio.sleep(1)
    assert len(peer.handler.ended) == 1


async def test_a_half_request_behind_a_refused_one_has_the_same_limit() -> None:
    peer = Peer()
    refused, half = request(b"{}", b"/score"), request(b"{}")[:-1]
    peer.send(refused[:-1])
    peer.send(refused[-1:] + half)
    assert peer.got.startswith(b"HTTP/1.1 404")
    peer.got = b""
    await asyncio.sleep(10.1)
    assert peer.got.startswith(b"HTTP/1.1 408")


async def test_a_request_has_begun_with_its_head() -> None:
    """So that its duration counts a slow body."""
    peer = Peer()
    for pause in (2, 0):
        head, end, body = request(b"one").partition(b"\r\n\r\n")
        peer.send(head + end)
        await asyncio.sleep(pause)
        peer.send(body)
        await asyncio.sleep(1)
    assert peer.handler.received == pytest.approx([2, 0], abs=1e-6)
