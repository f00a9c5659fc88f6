"""Connections to one API server: HTTP/1.1 on asyncio's streams, with TLS and proxies. Some are kept for the next request.

Takes credentials as headers and a TLS context. Follows no redirect, decompresses nothing. Source: h11 @ 0.16; RFC 9110 and 9112.
"""

import asyncio
import math
import os
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import h11
from msgspec import Struct
from nodedevice_kube.credentials import Access, Headers
from nodedevice_kube.proxies import Proxy

# of status and headers of a response, also of a proxy's
_MOST_HEAD_BYTES: Final = 32 * 1024
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


class Broken(Exception):
    """No usable response. The text is the problem in the system's words, without addresses."""


class Late(Broken):
    """The connection is open, and nothing came over it within so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no response within {round(seconds, 1):g} s")
        self.seconds = seconds


class _Ended(Broken):
    """The peer ended the connection before the first byte of a response."""


class Request(Struct, frozen=True):
    """target: path and query. headers: without headers of connection and credentials.

    before_write: called before the first byte is sent, each time; if it raises, nothing is sent.
    """

    method: str
    target: str
    headers: Headers = ()
    body: bytes | None = None
    before_write: Callable[[], None] | None = None


class Response(Protocol):
    """A response whose body is still to be read. It must be closed; a connection that is not read to its end is ended."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str | None:
        """name: in small letters."""

    async def read(self, seconds: float | None) -> bytes:
        """Return the next bytes; b"" at the end. seconds: None waits for ever. Raises Broken, and Late."""

    def close(self) -> None: ...


class Sender(Protocol):
    """Sends the requests of a transport."""

    async def send(self, request: Request, access: Access, seconds: float) -> Response:
        """Send, and wait for the start of the response for so many seconds. Raises Broken, and errors of `before_write`."""

    async def close(self) -> None:
        """End all connections."""


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
        try:
            head = h11.Request(method=request.method, target=f"{self._prefix}{request.target}", headers=headers)
        except h11.ProtocolError as exc:
            raise Broken(_problem(exc)) from exc
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
            if isinstance(exc, OSError | ValueError | RuntimeError | h11.ProtocolError):
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
        self._http = _new_http()
        self.tls: ssl.SSLContext | None = None
        self._expiry: asyncio.TimerHandle | None = None
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
        peer: socket.socket = transport.get_extra_info("socket")
        for option in _KEEPALIVE:
            peer.setsockopt(*option)
        return cls(pool, reader, transport)

    async def tunnel(self, authority: str, headers: Headers) -> None:
        """Make the proxy connect to that HOST:PORT. Raises Broken and OSError."""
        connect = h11.Request(method="CONNECT", target=authority, headers=[("Host", authority), *headers])
        self._transport.write(self._http.send(connect) or b"")
        response = await self._head()
        if response.status_code // 100 != 2:
            raise Broken(f"{response.status_code} {response.reason.decode('ascii', 'replace')}".strip())
        if self._http.trailing_data[0]:
            raise Broken("the proxy sends something before the API server does")
        self._http = _new_http()

    async def start_tls(self, tls: ssl.SSLContext, name: str) -> None:
        """Raises OSError and ValueError."""
        transport, loop = self._transport, asyncio.get_running_loop()
        secured = await loop.start_tls(transport, transport.get_protocol(), tls, server_hostname=name)
        if secured is None:
            raise ConnectionAbortedError("the connection was ended during the TLS handshake")
        self._transport = secured

    async def exchange(self, head: h11.Request, request: Request, seconds: float) -> "_Exchange":
        """Send a request, and wait for the start of the response."""
        with self._ended_by_failures(seconds):
            octets = self._http.send(head)
            if request.body is not None:
                octets += self._http.send(h11.Data(data=request.body))
            octets += self._http.send(h11.EndOfMessage())
            if request.before_write is not None:
                request.before_write()
            # Not awaited: a server that responds to half a body may read no more of it.
            self._transport.write(octets)
            async with asyncio.timeout(seconds):
                return _Exchange(self, await self._head())

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes of the response, as `Response.read`."""
        with self._ended_by_failures(seconds):
            event: object = self._http.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(seconds):
                    event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    @contextmanager
    def _ended_by_failures(self, seconds: float | None) -> Iterator[None]:
        """Raises Broken for errors of the connection."""
        try:
            yield
        except BaseException as exc:
            self.end()
            if isinstance(exc, TimeoutError) and not exc.errno:
                raise Late(seconds or math.inf) from exc
            if isinstance(exc, OSError | h11.ProtocolError):
                raise (_Ended if self._is_unused else Broken)(_problem(exc)) from exc
            raise

    def free(self) -> None:
        """Keep it for another request if the response was read to its end; else end it."""
        is_whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not is_whole or self._http.trailing_data[0] or self._reader.is_fed or not self._is_open:
            self.end()
        else:
            self._http.start_next_cycle()
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
        if self._expiry is not None:
            self._expiry.cancel()
        self._transport.abort()
        self._pool.ended(self)

    @property
    def _is_open(self) -> bool:
        return not (self._transport.is_closing() or self._reader.at_eof())

    async def _head(self) -> h11.Response:
        while isinstance(event := await self._event(), h11.InformationalResponse):
            pass
        assert isinstance(event, h11.Response)
        return event

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            octets = await self._reader.read(self._pool.buffer_bytes)
            # after a partial read the buffer is empty
            self._reader.is_fed = len(octets) == self._pool.buffer_bytes
            self._is_unused = self._is_unused and not octets
            if not octets and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionError("the connection was closed without a response")
            self._http.receive_data(octets)
        return event


class _Exchange:
    """A response, until it is closed."""

    def __init__(self, connection: _Connection, response: h11.Response) -> None:
        self.status = response.status_code
        self._connection: _Connection | None = connection
        self._headers = response.headers

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    async def read(self, seconds: float | None) -> bytes:
        return await self._connection.read(seconds) if self._connection is not None else b""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.free()


def _new_http() -> h11.Connection:
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD_BYTES)


def _problem(exc: BaseException) -> str:
    """Return the problem in the system's words, never empty."""
    if isinstance(exc, socket.gaierror):
        return str(exc.strerror)
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0 and not isinstance(exc, ssl.SSLError):
        return os.strerror(exc.errno)
    return " ".join(str(exc).split()) or type(exc).__name__
