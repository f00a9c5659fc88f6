"""Connections to one API server: HTTP/1.1 on asyncio's streams, with TLS and proxies. Some are kept for the next request.

Takes credentials as headers and a TLS context. Follows no redirect, decompresses nothing. Source: RFC 9110 and 9112.
"""

import asyncio
import math
import os
import re
import socket
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote, urlsplit

from httptools import HttpParserError
from nodedevice_kube.credentials import Access, Headers
from nodedevice_kube.proxies import Proxy

from nodedevice_common.api_exchange import Broken, Late, Request, Response
from nodedevice_common.http_response import Received

# Source: RFC 9112 section 3, RFC 9110 section 5.5
_TARGET: Final = re.compile(r"[\x21-\x7e]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The second address of a host name is tried after this time, in parallel to the first. Source: RFC 8305.
_NEXT_ADDRESS_SECONDS: Final = 0.25
# An API server keeps an idle connection for 90 s, so that none is used while it ends.
_IDLE_SECONDS: Final = 60.0
# A connection to a peer that vanished is noticed within about half a minute.
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
# SO_LINGER: closing the socket resets the connection, and drops what the kernel has not sent yet
_RESET: Final = struct.pack("ii", 1, 0)


class _Ended(Broken):
    """The peer ended the connection before the first byte of a response."""


class Connections:
    """The connections to one API server: one for each request under way, and some that are kept for the next one.

    server: URL without a final slash. most_idle: how many are kept. connect_seconds: for TCP, proxy and TLS together. buffer_bytes:
    of each connection, process-wide; with less than a TLS record (16 KiB) a long response takes more reads.
    """

    def __init__(
        self,
        server: str,
        proxy: Proxy | None,
        user_agent: str,
        *,
        most_idle: int = 3,
        connect_seconds: float = 10.0,
        buffer_bytes: int = 32 * 1024,
    ) -> None:
        # asyncio fills a buffer of 256 KiB with zeros for each TLS connection: 40 MiB for 160 parallel requests. Its size is an
        # attribute of the class in every Python so far.
        SSLProtocol.max_size = self.buffer_bytes = buffer_bytes
        parts = urlsplit(server)
        # IDNA: headers have ASCII alone
        self._is_tls, self._host = parts.scheme == "https", (parts.hostname or "").encode("idna").decode()
        self._port = parts.port or (443 if self._is_tls else 80)
        self._proxy, self._user_agent = proxy, user_agent
        self._most_idle, self._connect_seconds = most_idle, connect_seconds
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = f"{host}:{self._port}"
        named = host if self._port == (443 if self._is_tls else 80) else self._authority
        # A proxy that forwards requests without TLS needs their server's name.
        forwards = proxy is not None and not self._is_tls
        self._prefix = (f"http://{self._authority}" if forwards else "") + quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._headers: Headers = (("Host", named), ("User-Agent", user_agent), ("Accept-Encoding", "identity"))
        if forwards:
            self._headers += self._proxy_headers()
        self._tls: ssl.SSLContext | None = None
        self._open: set[_Connection] = set()
        # the last one was used last
        self._idle: list[_Connection] = []

    async def send(self, request: Request, access: Access, seconds: float) -> Response:
        """An ended kept connection is replaced once; not for POST, which may have been carried out."""
        if access.tls is not self._tls:
            # As in client-go, connections with the former certificate end, also while in use.
            self._end_all()
            self._tls = access.tls
        headers = [*self._headers, *request.headers, *access.headers]
        if request.body is not None:
            headers.append(("Content-Length", str(len(request.body))))
        head = _head(request.method, f"{self._prefix}{request.target}", headers)
        kept = self._take()
        if kept is not None:
            try:
                return await kept.exchange(head, request, seconds)
            except _Ended:
                if request.method == "POST":
                    raise
        return await (await self._connect(access.tls)).exchange(head, request, seconds)

    async def close(self) -> None:
        self._end_all()
        # The loop closes their sockets in its next turn.
        await asyncio.sleep(0)

    def _end_all(self) -> None:
        for connection in tuple(self._open):
            connection.end()

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.reused():
                return connection
            connection.end()
        return None

    def free(self, connection: "_Connection") -> None:
        """Keep a connection for the next request, unless the certificate has changed."""
        if connection.tls is not self._tls:
            connection.end()
            return
        connection.keep()
        self._idle.append(connection)
        if len(self._idle) > self._most_idle:
            self._idle[0].end()

    def ended(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self, tls: ssl.SSLContext | None) -> "_Connection":
        host, port = (self._proxy.host, self._proxy.port) if self._proxy is not None else (self._host, self._port)
        connection = None
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await _Connection.opened(self, host, port)
                connection.tls = tls
                self._open.add(connection)
                if self._proxy is not None and tls is not None:
                    await connection.tunnel(self._authority, (("User-Agent", self._user_agent), *self._proxy_headers()))
                if tls is not None:
                    await connection.start_tls(tls, self._host)
        except BaseException as exc:
            if connection is not None:
                connection.end()
            if isinstance(exc, TimeoutError):
                raise Broken(
                    _problem(exc) if exc.errno else f"no connection within {self._connect_seconds:g} s"
                ) from exc
            # ValueError: a name that no certificate has. RuntimeError: no thread can be started to resolve a host name.
            if isinstance(exc, OSError | ValueError | RuntimeError | HttpParserError):
                raise Broken(_problem(exc)) from exc
            raise
        return connection

    def _proxy_headers(self) -> Headers:
        authorization = self._proxy.authorization if self._proxy is not None else ""
        return (("Proxy-Authorization", authorization),) if authorization else ()


class _Protocol(asyncio.StreamReaderProtocol):
    """Ends a connection whose peer has ended it."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


class _Reader(asyncio.StreamReader):
    """is_fed: unread bytes may have arrived."""

    is_fed = False

    def feed_data(self, data: Any) -> None:
        self.is_fed = True
        super().feed_data(data)


class _Connection:
    """One connection, and the response to its last request."""

    def __init__(self, pool: Connections, reader: _Reader, transport: asyncio.Transport) -> None:
        self._pool, self._reader, self._transport = pool, reader, transport
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._received = Received()
        self.tls: ssl.SSLContext | None = None
        self._expiry: asyncio.TimerHandle | None = None
        # whether a request was sent
        self._has_sent = False
        # whether it was kept, and no byte has been read since
        self._is_unused = False

    @classmethod
    async def opened(cls, pool: Connections, host: str, port: int) -> "_Connection":
        """Raises OSError and RuntimeError."""
        loop = asyncio.get_running_loop()
        reader = _Reader(limit=pool.buffer_bytes, loop=loop)
        protocol = _Protocol(reader, loop=loop)
        # An address needs no race, in which asyncio leaves the socket of a cancelled request to the garbage collector.
        is_address = ":" in host or host.replace(".", "").isdecimal()
        delay = None if is_address else _NEXT_ADDRESS_SECONDS
        transport, _ = await loop.create_connection(lambda: protocol, host, port, happy_eyeballs_delay=delay)
        made = cls(pool, reader, transport)
        for option in _KEEPALIVE:
            made._socket.setsockopt(*option)
        return made

    async def tunnel(self, authority: str, headers: Headers) -> None:
        """Make the proxy connect to that HOST:PORT. Raises Broken and OSError."""
        self._transport.write(_head("CONNECT", authority, (("Host", authority), *headers)))
        await self._head()
        if self._received.status // 100 != 2:
            raise Broken(f"{self._received.status} {self._received.reason}".strip())
        # a body comes from the server behind the proxy, or from nowhere
        if self._received.has_more or self._received.body:
            raise Broken("the proxy sends something before the API server does")

    async def start_tls(self, tls: ssl.SSLContext, name: str) -> None:
        """Raises OSError and ValueError."""
        transport, loop = self._transport, asyncio.get_running_loop()
        secured = await loop.start_tls(transport, transport.get_protocol(), tls, server_hostname=name)
        if secured is None:
            raise ConnectionAbortedError("the connection was ended during the TLS handshake")
        self._transport = secured

    async def exchange(self, head: bytes, request: Request, seconds: float) -> "_Exchange":
        """Send a request, and wait for the start of the response."""
        with self._ended_by_failures(seconds):
            if request.before_write is not None:
                request.before_write()
            self._has_sent = True
            # Not awaited: a server that responds to half a body may read no more of it.
            self._transport.write(head + request.body if request.body is not None else head)
            async with asyncio.timeout(seconds):
                await self._head()
        return _Exchange(self, self._received)

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes of the response, as `Response.read`."""
        received = self._received
        if not received.body and not received.is_whole:
            with self._ended_by_failures(seconds):
                if seconds is None:
                    await self._receive_body()
                else:
                    async with asyncio.timeout(seconds):
                        await self._receive_body()
        return received.take()

    @contextmanager
    def _ended_by_failures(self, seconds: float | None) -> Iterator[None]:
        """Raises Broken for errors of the connection."""
        try:
            yield
        except BaseException as exc:
            self.end()
            if isinstance(exc, TimeoutError) and not exc.errno:
                raise Late(seconds or math.inf) from exc
            if isinstance(exc, OSError | HttpParserError):
                raise (_Ended if self._is_unused else Broken)(_problem(exc)) from exc
            raise

    def free(self) -> None:
        """Keep it for another request if the response was read to its end; else end it."""
        if not self._received.ends_request or self._reader.is_fed or not self._is_open:
            self.end()
        else:
            self._pool.free(self)

    def keep(self) -> None:
        """End it after a while, unless it is used again."""
        self._is_unused = True
        self._expiry = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.end)

    def reused(self) -> bool:
        """Whether it can be used again: its peer has neither ended it nor sent anything unasked."""
        if self._expiry is not None:
            self._expiry.cancel()
        return self._is_open and not self._reader.is_fed

    def end(self) -> None:
        """End it. The kernel would otherwise go on sending an unfinished request, such as a write of a former leader."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._has_sent and not self._received.is_whole:
            # It may be closed already.
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()
        self._pool.ended(self)

    @property
    def _is_open(self) -> bool:
        return not (self._transport.is_closing() or self._reader.at_eof())

    async def _head(self) -> None:
        """Receive the head of the next response. Interim responses are skipped."""
        self._received = Received()
        while not self._received.has_head:
            await self._receive()

    async def _receive_body(self) -> None:
        while not self._received.body and not self._received.is_whole:
            await self._receive()

    async def _receive(self) -> None:
        octets = await self._reader.read(self._pool.buffer_bytes)
        # after a partial read the buffer is empty
        self._reader.is_fed = len(octets) == self._pool.buffer_bytes
        self._is_unused = self._is_unused and not octets
        self._received.feed(octets)


class _Exchange:
    """A response, until it is closed."""

    def __init__(self, connection: _Connection, received: Received) -> None:
        self.status = received.status
        self._connection: _Connection | None = connection
        self._headers = received.headers

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    async def read(self, seconds: float | None) -> bytes:
        return await self._connection.read(seconds) if self._connection is not None else b""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.free()


def _head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a request. Raises Broken for a character that would end the target or a header."""
    if not _TARGET.fullmatch(target):
        raise Broken("illegal target of a request")
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers:
        if not _HEADER_VALUE.fullmatch(value):
            raise Broken(f"illegal value of the header {name}")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _problem(exc: BaseException) -> str:
    """Return the problem in the system's words, never empty."""
    if isinstance(exc, socket.gaierror):
        return str(exc.strerror)
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0 and not isinstance(exc, ssl.SSLError):
        return os.strerror(exc.errno)
    return " ".join(str(exc).split()) or type(exc).__name__
