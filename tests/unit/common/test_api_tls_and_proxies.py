"""Connections to an API server by TLS and through proxies, over real sockets."""

import asyncio

import pytest
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Broken, Request
from nodedevice_kube.credentials import Access
from nodedevice_kube.proxies import Proxy

from tests.fakes.http_peer import OK, Peer, Received, answering, listening, received
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.common.api_clients import CHUNKED, PATIENCE_SECONDS, asked, client, client_tls, server_tls, silent


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
        assert server.connections == 3
        with pytest.raises(Broken):
            await watch.read(PATIENCE_SECONDS)


async def test_a_connection_that_is_ended_during_the_handshake() -> None:
    """First because another certificate came, then because the program ends."""
    asking: list[asyncio.Task[bytes]] = []
    async with listening(silent) as server, client(server.port, "https") as connections:
        for _ in range(2):
            asking.append(asyncio.create_task(asked(connections, access=Access((), client_tls()))))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while server.connections < len(asking):
                    await asyncio.sleep(0)
        await connections.close()
        for task in asking:
            with pytest.raises(Broken, match="handshake"):
                await task
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.ended.wait()


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


@pytest.mark.parametrize(
    ("server", "address", "host"),
    [
        ("http://api.example:8001", "api.example:8001", "api.example:8001"),
        # as DNS has it
        ("http://bücher.example", "xn--bcher-kva.example:80", "xn--bcher-kva.example"),
    ],
)
async def test_without_tls_a_proxy_gets_the_servers_address(server: str, address: str, host: str) -> None:
    seen: list[Received] = []
    async with listening(answering(OK, seen=seen)) as way:
        connections = Connections(server, Proxy("127.0.0.1", way.port, "Basic cA=="), "a-program")
        assert await asked(connections) == b"ok"
        await connections.close()
    assert seen[0].line == f"GET http://{address}/api/v1/nodes/n?x=1 HTTP/1.1"
    assert (seen[0].headers["host"], seen[0].headers["proxy-authorization"]) == (host, "Basic cA==")


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
        await connections.close()
