"""Connections to a server of the test, with and without TLS, for the tests of connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trustme
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Request, Response
from nodedevice_kube.credentials import Access
from nodedevice_kube.proxies import Proxy

from tests.fakes.http_peer import Listening, Peer, listening

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


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
