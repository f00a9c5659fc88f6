"""Connections to an API server, over real sockets: what is sent, what is kept, and what each break of a connection ends with."""

import asyncio
import gc
import os

import pytest
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Broken, Late, Request
from nodedevice_kube.credentials import Access

from tests.fakes.http_peer import OK, Peer, Received, answering, listening, received
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.common.api_clients import CHUNKED, GET, PATIENCE_SECONDS, PLAIN, asked, client, client_of, silent, whole

CLOSING = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

# -- requests and responses ---------------------------------------------------------------------------------------------------


async def test_a_request_has_its_headers_those_of_the_connection_and_the_credentials() -> None:
    """The path of the server goes before that of the request."""
    seen: list[Received] = []
    put = Request("PUT", "/x", (("Content-Type", "application/json"),), b"{}")
    async with listening(answering(OK, OK, seen=seen)) as server:
        connections = Connections(f"http://127.0.0.1:{server.port}/k8s/a b", None, "a-program")
        assert await asked(connections) == b"ok"
        assert await asked(connections, put) == b"ok"
        await connections.close()
    headers = {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "a-program",
        "accept-encoding": "identity",
        "authorization": "Bearer t",
    }
    assert seen == [
        Received("GET /k8s/a%20b/api/v1/nodes/n?x=1 HTTP/1.1", {**headers, "accept": "application/json"}, b""),
        Received(
            "PUT /k8s/a%20b/x HTTP/1.1", {**headers, "content-type": "application/json", "content-length": "2"}, b"{}"
        ),
    ]


@pytest.mark.parametrize(
    ("octets", "body"),
    [
        pytest.param(CHUNKED + b"1\r\na\r\n2;ext=1\r\nbc\r\n0\r\n\r\n", b"abc", id="chunked"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n" + OK, b"ok", id="after other responses"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="none"),
        pytest.param(CLOSING + b"more", b"ok", id="before bytes of no response"),
        pytest.param(CHUNKED + b"1\r\na\r\n0\r\nX-A: b\r\n\r\n", b"a", id="before trailers"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end", id="up to the end of the connection"),
    ],
)
async def test_a_body_is_read_in_each_form(octets: bytes, body: bytes) -> None:
    async with client_of(answering(octets)) as (connections, _):
        assert await asked(connections) == body


async def test_a_long_body_arrives_whole_in_small_buffers() -> None:
    body = bytes(range(256)) * 20_000
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    found = []
    async with client_of(answering(head + body)) as (connections, _):
        response = await connections.send(GET, PLAIN, PATIENCE_SECONDS)
        while octets := await response.read(PATIENCE_SECONDS):
            found.append(octets)
        response.close()
    assert (b"".join(found), max(map(len, found)) <= 32 * 1024) == (body, True)


# -- connections that are kept ------------------------------------------------------------------------------------------------


async def test_requests_side_by_side_have_a_connection_each_of_which_a_few_are_kept() -> None:
    count, arrived, all_but_two = 20, asyncio.Event(), asyncio.Event()
    waiting = ended = 0

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting, ended
        await received(reader)
        waiting += 1
        if waiting == count:
            arrived.set()
        await arrived.wait()
        writer.write(OK)
        if not await reader.read(1):
            ended += 1
        if ended == count - 2:
            all_but_two.set()

    async with client_of(peer, most_idle=2) as (connections, server):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(asked(connections) for _ in range(count)))
            await all_but_two.wait()
        assert server.connections == count


@pytest.mark.parametrize("is_read", [True, False])
async def test_what_is_not_read_to_its_end_or_is_to_be_closed_is_not_used_again(is_read: bool) -> None:
    async with client_of(answering(CLOSING if is_read else OK, OK)) as (connections, server):
        response = await connections.send(GET, PLAIN, PATIENCE_SECONDS)
        if is_read:
            await whole(response)
        response.close()
        assert await asked(connections) == b"ok"
        assert server.connections == 2


@virtual_time
async def test_a_connection_is_kept_for_a_while() -> None:
    async with client_of(answering(OK, OK, OK)) as (connections, server):
        await asked(connections)
        await asyncio.sleep(59)
        await asked(connections)
        await asyncio.sleep(61)
        assert server.ended.is_set()
        await asked(connections)
        assert server.connections == 2


async def test_a_kept_connection_that_has_ended_meanwhile_is_no_failure() -> None:
    async with client_of(answering(OK)) as (connections, server):
        for count in (1, 2):
            await asked(connections)
            await server.ended.wait()
            assert server.connections == count


async def test_what_comes_unasked_is_no_response_to_the_next_request() -> None:
    """Proxies say so before they end a connection that was idle for too long."""
    late = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
        writer.write(OK)
        await late.wait()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        late.clear()
        await reader.read()

    async with client_of(peer, answering(OK)) as (connections, server):
        await asked(connections)
        late.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while late.is_set() or not next(iter(connections._open))._reader.is_fed:
                await asyncio.sleep(0)
        assert await asked(connections) == b"ok"
        assert server.connections == 2


async def test_what_follows_a_body_in_a_full_buffer_is_no_response_to_the_next_request() -> None:
    body = b"a" * (1024 - len(head_of(0)))
    first = head_of(len(body)) + body + b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    async with client_of(answering(first, OK), answering(OK), buffer_bytes=1024) as (connections, server):
        assert await asked(connections) == body
        assert await asked(connections) == b"ok"
        assert server.connections == 2


def head_of(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %03d\r\n\r\n" % length


async def test_a_kept_connection_is_closed_as_soon_as_its_peer_has_closed_it() -> None:
    """Else its socket stays half open (CLOSE_WAIT)."""
    closed = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
        writer.write(OK)
        writer.write_eof()
        await reader.read()
        closed.set()

    async with client_of(peer) as (connections, _):
        assert await asked(connections) == b"ok"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await closed.wait()


def ending(*answers: bytes) -> Peer:
    """Takes one request more than it answers."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for octets in answers:
            await received(reader)
            writer.write(octets)
        await received(reader)

    return peer


@pytest.mark.parametrize(
    ("method", "peers", "connections_made"),
    [
        pytest.param("GET", [ending(OK), answering(OK)], 2, id="replaced"),
        pytest.param("PATCH", [ending(OK), answering(OK)], 2, id="replaced for a write"),
        pytest.param("POST", [ending(OK), answering(OK)], None, id="not for a creation"),
        pytest.param("GET", [ending(OK), ending()], None, id="once"),
        pytest.param("GET", [answering(OK, b"HTTP/1.1 2"), answering(OK)], None, id="not after a byte of a response"),
    ],
)
async def test_a_kept_connection_that_ends_at_a_request_is_replaced(
    method: str, peers: list[Peer], connections_made: int | None
) -> None:
    async with client_of(*peers) as (connections, server):
        await asked(connections)
        if connections_made:
            assert await asked(connections, Request(method, "/x")) == b"ok"
            assert server.connections == connections_made
        else:
            with pytest.raises(Broken, match="connection"):
                await asked(connections, Request(method, "/x"))


# -- breaks -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        pytest.param(b"", "the connection was closed without a response", id="no response"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "before the end of the response", id="cut"),
        pytest.param(CHUNKED + b"4\r\nhal", "before the end of the response", id="cut in a chunk"),
        pytest.param(CHUNKED + b"x\r\n", "^invalid response: Invalid character in chunk size$", id="no chunk"),
        pytest.param(b"220 smtp.example ESMTP\r\n\r\n", "^invalid response: Expected HTTP/", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 10_000, "too long", id="headers without end"),
        pytest.param(CHUNKED + b"1\r\na\r\n0\r\n" + b"X-A: b\r\n" * 10_000, "too long", id="trailers without end"),
        pytest.param(CHUNKED + b"1;" + b"a" * 80_000, "too long", id="a chunk's extension without end"),
        pytest.param(
            CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n"), "^invalid response", id="two lengths"
        ),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "^the server switched to another protocol$",
            id="an upgrade",
        ),
    ],
)
async def test_a_response_that_breaks_off(octets: bytes, problem: str) -> None:
    async with client_of(answering(octets)) as (connections, _):
        with pytest.raises(Broken, match=problem):
            await asked(connections)


async def test_nothing_listens() -> None:
    async with listening(answering()) as server:
        pass
    async with client(server.port) as connections:
        with pytest.raises(Broken, match=r"^Connection refused$"):
            await asked(connections)


async def test_no_thread_can_be_started_to_resolve_a_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(Broken, match=r"^can't start new thread$"):
        await asked(Connections("http://api.example", None, "a-program"))


@virtual_time
async def test_no_response_in_time() -> None:
    async with client_of(silent) as (connections, server):
        with pytest.raises(Late, match=r"^no response within 7 s$"):
            await connections.send(GET, PLAIN, 7)
        await server.ended.wait()
        # the kernel sends no more of the request
        assert isinstance(server.problem, ConnectionResetError)


@virtual_time
async def test_silence_in_a_response_is_bounded_or_not() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        await asyncio.sleep(1000)
        writer.write(b"1\r\na\r\n")
        await reader.read()

    async with client_of(peer) as (connections, server):
        response = await connections.send(GET, PLAIN, 7)
        assert await response.read(None) == b"a"
        with pytest.raises(Late, match=r"^no response within 7 s$"):
            await response.read(7)
        response.close()
        await server.ended.wait()


@pytest.mark.parametrize("turns", range(12))
async def test_a_request_that_is_cancelled_in_any_turn_leaves_no_socket(
    turns: int, request: pytest.FixtureRequest
) -> None:
    """Without the garbage collector."""
    gc.disable()
    request.addfinalizer(gc.enable)
    async with listening(silent) as server, client(server.port) as connections:
        before = len(os.listdir("/proc/self/fd"))
        asking = asyncio.create_task(asked(connections))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    ("target", "token", "problem"),
    [
        ("/x HTTP/1.1\r\nA: b", "t", "^illegal target of a request$"),
        ("/x", "a\nb", "^illegal value of the header Authorization$"),
    ],
    ids=["target", "header"],
)
async def test_what_cannot_be_sent(target: str, token: str, problem: str) -> None:
    async with client_of(answering(OK)) as (connections, _):
        with pytest.raises(Broken, match=problem):
            await asked(connections, Request("GET", target), Access((("Authorization", f"Bearer {token}"),), None))


@pytest.mark.parametrize("is_kept", [False, True])
async def test_nothing_of_a_write_is_sent_where_it_may_not_be(is_kept: bool) -> None:
    """It is decided when the connection is there."""
    octets: list[bytes] = []
    calls: list[str] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_kept:
            await received(reader)
            writer.write(OK)
        octets.append(await reader.read())

    def forbid() -> None:
        calls.append(f"{server.connections} connection")
        raise LookupError("not now")

    async with client_of(peer) as (connections, server):
        if is_kept:
            await asked(connections)
        with pytest.raises(LookupError, match="not now"):
            await asked(connections, Request("PUT", "/x", body=b"{}", before_write=forbid))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.ended.wait()
    assert (octets, calls) == ([b""], ["1 connection"])
