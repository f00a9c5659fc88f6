"""Connections to an API server, over real sockets: what is sent, what is kept, and what each break of a connection ends with."""

import asyncio
import gc
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trustme
from nodedevice_common.api_connections import Broken, Connections, Late, Request, Response
from nodedevice_kube.credentials import Access
from nodedevice_kube.proxies import Proxy
from nodedevice_kube.settings import Settings
from nodedevice_kube.tls import new_context

from tests.fakes.http_peer import OK, Listening, Peer, Received, answering, listening, received
from tests.fakes.polling import until
from tests.fakes.virtual_time import later, virtual_time

GET: Final = Request("GET", "/api/v1/nodes/n?x=1", (("Accept", "application/json"),))
PLAIN: Final = Access((("Authorization", "Bearer t"),), None)
# Ends a test that hangs, and decides nothing else.
PATIENCE_SECONDS: Final = 60.0
AUTHORITY: Final = trustme.CA()
CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1", "api.example").configure_cert(context)
    return context


@asynccontextmanager
async def client(
    port: int, scheme: str = "http", proxy: Proxy | None = None, **more: Any
) -> AsyncIterator[Connections]:
    made = Connections(f"{scheme}://127.0.0.1:{port}", proxy, "a-program", **more)
    yield made
    await made.close()


@asynccontextmanager
async def client_of(*peers: Peer, **more: Any) -> AsyncIterator[tuple[Connections, Listening]]:
    async with listening(*peers) as server, client(server.port, **more) as made:
        yield made, server


async def whole(response: Response) -> bytes:
    """The body; the response is closed."""
    body = b""
    try:
        while octets := await response.read(PATIENCE_SECONDS):
            body += octets
    finally:
        response.close()
    return body


async def asked(connections: Connections, request: Request = GET, access: Access = PLAIN) -> bytes:
    return await whole(await connections.send(request, access, PATIENCE_SECONDS))


# -- requests and responses ---------------------------------------------------------------------------------------------------


async def test_a_request_has_its_headers_those_of_the_connection_and_the_credentials() -> None:
    seen: list[Received] = []
    put = Request("PUT", "/x", (("Content-Type", "application/json"),), b"{}")
    async with client_of(answering(OK, OK, seen=seen)) as (connections, server):
        assert await asked(connections) == b"ok"
        assert await asked(connections, put) == b"ok"
    headers = {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "a-program",
        "accept-encoding": "identity",
        "authorization": "Bearer t",
    }
    assert seen == [
        Received("GET /api/v1/nodes/n?x=1 HTTP/1.1", {**headers, "accept": "application/json"}, b""),
        Received("PUT /x HTTP/1.1", {**headers, "content-type": "application/json", "content-length": "2"}, b"{}"),
    ]


async def test_a_servers_path_goes_before_that_of_a_request() -> None:
    seen: list[Received] = []
    async with listening(answering(OK, seen=seen)) as server:
        connections = Connections(f"http://127.0.0.1:{server.port}/k8s/a b", None, "a-program")
        await asked(connections)
        await connections.close()
    assert seen[0].line == "GET /k8s/a%20b/api/v1/nodes/n?x=1 HTTP/1.1"


@pytest.mark.parametrize(
    ("octets", "body"),
    [
        pytest.param(CHUNKED + b"1\r\na\r\n2;ext=1\r\nbc\r\n0\r\n\r\n", b"abc", id="chunked"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n" + OK, b"ok", id="after other responses"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="none"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end", id="up to the end of the connection"),
    ],
)
async def test_a_body_is_read_in_each_form(octets: bytes, body: bytes) -> None:
    async with client_of(answering(octets)) as (connections, _):
        assert await asked(connections) == body


async def test_status_and_headers_of_a_response() -> None:
    octets = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    async with client_of(answering(octets)) as (connections, _):
        response = await connections.send(GET, PLAIN, PATIENCE_SECONDS)
        assert (response.status, response.header("retry-after"), response.header("location")) == (429, "7", None)
        response.close()


async def test_a_long_body_arrives_whole_in_small_buffers() -> None:
    body = bytes(range(256)) * 20_000
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with client_of(answering(head + body)) as (connections, _):
        response = await connections.send(GET, PLAIN, PATIENCE_SECONDS)
        found = []
        while octets := await response.read(PATIENCE_SECONDS):
            found.append(octets)
        response.close()
    assert b"".join(found) == body
    assert max(map(len, found)) <= 32 * 1024


# -- connections that are kept ------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again_once_its_response_is_read() -> None:
    async with client_of(answering(OK, OK, OK)) as (connections, server):
        for _ in range(3):
            await asked(connections)
        assert server.connections == 1


async def test_requests_side_by_side_have_a_connection_each_of_which_a_few_are_kept() -> None:
    count, arrived = 20, asyncio.Event()
    waiting = 0

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waiting
        await received(reader)
        waiting += 1
        if waiting == count:
            arrived.set()
        await arrived.wait()
        writer.write(OK)
        await received(reader)
        writer.write(OK)
        await reader.read()

    async with client_of(peer, most_idle=2) as (connections, server):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(asked(connections) for _ in range(count)))
        await asyncio.gather(*(asked(connections) for _ in range(2)))
        assert server.connections == count
        assert len(connections._open) == 2


@pytest.mark.parametrize("is_read", [True, False])
async def test_what_is_not_read_to_its_end_or_is_to_be_closed_is_not_used_again(is_read: bool) -> None:
    last = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with client_of(answering(last if is_read else OK, OK)) as (connections, server):
        response = await connections.send(GET, PLAIN, PATIENCE_SECONDS)
        if is_read:
            await whole(response)
        response.close()
        assert await asked(connections) == b"ok"
        assert server.connections == 2


@virtual_time
async def test_a_connection_is_kept_for_a_while() -> None:
    async with client_of(answering(OK, OK, OK), idle_seconds=60) as (connections, server):
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
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "without sending complete", id="cut"),
        pytest.param(CHUNKED + b"4\r\nhal", "without sending complete", id="cut in a chunk"),
        pytest.param(CHUNKED + b"x\r\n", "illegal chunk header", id="no chunk"),
        pytest.param(b"220 smtp.example ESMTP\r\n\r\n", "illegal status line", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 10_000, "too long", id="headers without end"),
    ],
)
async def test_a_response_that_breaks_off(octets: bytes, problem: str) -> None:
    async with client_of(answering(octets)) as (connections, _):
        with pytest.raises(Broken, match=problem):
            await asked(connections)
        assert not connections._open


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


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@virtual_time
async def test_no_response_in_time() -> None:
    async with client_of(silent) as (connections, _):
        with pytest.raises(Late, match=r"^no response within 7 s$"):
            await connections.send(GET, PLAIN, 7)
        assert not connections._open


@virtual_time
async def test_silence_in_a_response_is_bounded_or_not() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        await asyncio.sleep(1000)
        writer.write(b"1\r\na\r\n")
        await reader.read()

    async with client_of(peer) as (connections, _):
        response = await connections.send(GET, PLAIN, 7)
        assert await response.read(None) == b"a"
        with pytest.raises(Late, match=r"^no response within 7 s$"):
            await response.read(7)
        response.close()
        assert not connections._open


async def test_a_request_that_is_cancelled_ends_its_connection() -> None:
    async with client_of(silent) as (connections, server):
        asking = asyncio.create_task(asked(connections))
        while not connections._open:
            await asyncio.sleep(0)
        asking.cancel()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.ended.wait()
        assert not connections._open


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


async def test_a_header_that_cannot_be_sent() -> None:
    async with client_of(answering(OK)) as (connections, _):
        with pytest.raises(Broken, match="Illegal header value"):
            await asked(connections, access=Access((("Authorization", "Bearer a\nb"),), None))


@pytest.mark.parametrize("is_kept", [False, True])
async def test_nothing_of_a_write_is_sent_where_it_may_not_be(is_kept: bool) -> None:
    """It is decided when the connection is there."""
    octets: list[bytes] = []
    calls: list[int] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_kept:
            await received(reader)
            writer.write(OK)
        octets.append(await reader.read())

    def forbid() -> None:
        calls.append(len(connections._open))
        raise LookupError("not now")

    async with client_of(peer) as (connections, server):
        if is_kept:
            await asked(connections)
        with pytest.raises(LookupError, match="not now"):
            await asked(connections, Request("PUT", "/x", body=b"{}", before_write=forbid))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.ended.wait()
    assert (octets, calls) == ([b""], [1])


# -- TLS ----------------------------------------------------------------------------------------------------------------------


async def test_the_server_is_verified() -> None:
    async with listening(answering(OK), tls=server_tls()) as server, client(server.port, "https") as connections:
        assert await asked(connections, access=Access((), client_tls())) == b"ok"
        with pytest.raises(Broken, match="certificate verify failed"):
            await asked(connections, access=Access((), ssl.create_default_context()))
        assert not connections._open


async def test_with_another_certificate_all_connections_begin_anew() -> None:
    """Also that of a watch."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await received(reader)).line
        writer.write(CHUNKED if "watch" in line else OK)
        await reader.read()

    async with listening(peer, tls=server_tls()) as server, client(server.port, "https") as connections:
        former, renewed = Access((), client_tls()), Access((), client_tls())
        watch = await connections.send(Request("GET", "/watch"), former, PATIENCE_SECONDS)
        await asked(connections, access=former)
        assert await asked(connections, access=renewed) == b"ok"
        assert (server.connections, len(connections._open)) == (3, 1)
        with pytest.raises(Broken):
            await watch.read(PATIENCE_SECONDS)


async def test_a_connection_that_is_ended_during_the_handshake() -> None:
    """First because another certificate came, then because the program ends."""
    asking: list[asyncio.Task[bytes]] = []
    async with listening(silent) as server, client(server.port, "https") as connections:
        for _ in range(2):
            asking.append(asyncio.create_task(asked(connections, access=Access((), client_tls()))))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not connections._open or len(asking) == server.connections + 1:
                    await asyncio.sleep(0)
        await connections.close()
        for task in asking:
            with pytest.raises(Broken, match="handshake"):
                await task
        assert not connections._open


async def test_a_connection_that_is_made_meanwhile_is_not_kept_with_the_former_certificate() -> None:
    async with listening(answering(OK, OK), tls=server_tls()) as server, client(server.port, "https") as connections:
        former, renewed = Access((), client_tls()), Access((), client_tls())
        asking = asyncio.create_task(asked(connections, access=former))
        await asyncio.sleep(0)
        assert await asked(connections, access=renewed) == b"ok"
        await asyncio.gather(asking, return_exceptions=True)
        assert [connection.tls for connection in connections._idle] == [renewed.tls]


async def test_a_name_that_no_certificate_can_have() -> None:
    tls = new_context(Settings(server="https://a", origin="a test", is_insecure=True, tls_server_name="a" * 300))
    async with listening(silent) as server, client(server.port, "https") as connections:
        with pytest.raises(Broken):
            await asked(connections, access=Access((), tls))
        assert not connections._open


# -- proxies ------------------------------------------------------------------------------------------------------------------


def forwarding(port: int, seen: list[Received], head: bytes) -> Peer:
    """A proxy that connects to that port, whatever is asked for."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while octets := await reader.read(65536):
            writer.write(octets)
        writer.close()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await received(reader))
        writer.write(head + b"\r\n\r\n")
        upstream = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, upstream[1]), pump(upstream[0], writer), return_exceptions=True)

    return peer


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 Connection established\r\nX-Proxy: a",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
    ],
)
async def test_tls_goes_through_a_tunnel_and_the_proxys_password_to_the_proxy_alone(head: bytes) -> None:
    by_proxy: list[Received] = []
    by_server: list[Received] = []
    async with (
        listening(answering(OK, OK, seen=by_server), tls=server_tls()) as server,
        listening(forwarding(server.port, by_proxy, head)) as way,
        client(server.port, "https", Proxy("127.0.0.1", way.port, "Basic cA==")) as connections,
    ):
        access = Access((), client_tls())
        for _ in range(2):
            assert await asked(connections, access=access) == b"ok"
    authority = f"127.0.0.1:{server.port}"
    assert [request.line for request in by_proxy] == [f"CONNECT {authority} HTTP/1.1"]
    assert by_proxy[0].headers == {"host": authority, "user-agent": "a-program", "proxy-authorization": "Basic cA=="}
    assert [request.line for request in by_server] == ["GET /api/v1/nodes/n?x=1 HTTP/1.1"] * 2
    assert "proxy-authorization" not in by_server[0].headers


async def test_without_tls_a_proxy_is_told_the_server() -> None:
    seen: list[Received] = []
    async with listening(answering(OK, seen=seen)) as way:
        connections = Connections("http://api.example:8001", Proxy("127.0.0.1", way.port, "Basic cA=="), "a-program")
        assert await asked(connections) == b"ok"
        await connections.close()
    assert seen[0].line == "GET http://api.example:8001/api/v1/nodes/n?x=1 HTTP/1.1"
    assert (seen[0].headers["host"], seen[0].headers["proxy-authorization"]) == ("api.example:8001", "Basic cA==")


async def test_a_host_name_beyond_ascii_is_sent_as_dns_has_it() -> None:
    seen: list[Received] = []
    async with listening(answering(OK, seen=seen)) as way:
        connections = Connections("http://bücher.example", Proxy("127.0.0.1", way.port), "a-program")
        assert await asked(connections) == b"ok"
        await connections.close()
    assert seen[0].line == "GET http://xn--bcher-kva.example:80/api/v1/nodes/n?x=1 HTTP/1.1"
    assert seen[0].headers["host"] == "xn--bcher-kva.example"


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-A: b\r\n" * 1000)
        await writer.drain()


async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await later(1)


async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await received(reader)
    writer.write(b"HTTP/1.1 200 OK\r\n\r\nHello")
    await reader.read()


@virtual_time
@pytest.mark.parametrize(
    ("peer", "problem"),
    [
        pytest.param(answering(b"HTTP/1.1 407 Give a password\r\n\r\n"), "^407 Give a password$", id="refused"),
        pytest.param(answering(b""), "^the connection was closed without a response$", id="ended"),
        pytest.param(endless, "too long", id="headers without end"),
        pytest.param(slow, "^no connection within 5 s$", id="responses without end"),
        pytest.param(silent, "^no connection within 5 s$", id="silent"),
        pytest.param(eager, "the proxy sends something", id="more than a response"),
    ],
)
async def test_a_proxy_that_makes_no_connection(peer: Peer, problem: str) -> None:
    async with listening(peer) as way:
        connections = Connections("https://api.example", Proxy("127.0.0.1", way.port), "x", connect_seconds=5)
        with pytest.raises(Broken, match=problem):
            await asked(connections, access=Access((), client_tls()))
        assert not connections._open
        await connections.close()
