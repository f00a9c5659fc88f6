"""Accepts the connections of the extender's port, and closes the ones that cost too much; `admission` decides which.

With TLS every client is unknown until it has shown its certificate. asyncio's own servers accept connections until file descriptors
run out, and wait a minute for each handshake.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol

from nodedevice_common.paced_log import PacedLog

from nodedevice_operator.extender.admission import Admission
from nodedevice_operator.extender.http_protocol import HttpConnection
from nodedevice_operator.extender.metrics import ExtenderMetrics

log = logging.getLogger(__name__)

MOST: Final = 128
# from accept to the client's certificate, once without a byte and once for the handshake
HANDSHAKE_SECONDS: Final = 5.0
# for the response that lists the allowed names
_REFUSAL_SECONDS: Final = 1.0
# descriptors are used up: some are free again in a moment
_PAUSE_SECONDS: Final = 0.5
# beyond that the whole machine has stood still, not a handshake
_MOST_LATE_SECONDS: Final = 0.01
# Source: RFC 8446, 5.1: the first byte of a ClientHello
_HANDSHAKE_RECORD: Final = b"\x16"
# Source: include/net/tcp_states.h
_ESTABLISHED: Final = 1


class Port(Protocol):
    """The HTTP server behind the connections."""

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""

    def open_connections(self) -> Sequence[HttpConnection]:
        """Those with a transport, oldest first."""

    async def wait_for_change(self) -> None:
        """Waits until the next response is written, the next connection ends, or `changed` is called."""

    def changed(self) -> None: ...

    def context(self) -> ssl.SSLContext | None:
        """The TLS of a new connection; None: plain HTTP."""

    def is_allowed(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the client's certificate has an allowed name."""


class Connections:
    def __init__(self, listening: socket.socket, port: Port, metrics: ExtenderMetrics, most: int = MOST) -> None:
        self._listening = listening
        self._port = port
        self._metrics = metrics
        self._most = most
        self._paced = PacedLog(log)
        loop = asyncio.get_running_loop()
        self._admission: Admission[socket.socket] = Admission(loop.time())
        # without a handshake yet: when each is closed
        self._waiting: dict[socket.socket, tuple[str, asyncio.TimerHandle]] = {}
        self._handshakes: dict[socket.socket, tuple[str, asyncio.Task[None]]] = {}
        # connected, with a certificate that is not allowed
        self._refused: set[asyncio.BaseTransport] = set()
        self._next: asyncio.TimerHandle | None = None
        # of the loop: when it was to begin a handshake, and by how much it was late
        self._due = self._late = 0.0

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        try:
            while True:
                try:
                    connection, address = await loop.sock_accept(self._listening)
                except OSError as exc:
                    event = "cannot accept a connection; retrying"
                    self._paced.log(logging.WARNING, event, "", error=str(exc), retry_in_seconds=_PAUSE_SECONDS)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                await self._wait_for_room(connection)
                self._take(connection, str(address[0]))
                # established connections run before the next accept
                await asyncio.sleep(0)
        finally:
            await self._end()

    async def _end(self) -> None:
        for connection in [*self._waiting]:
            self._close(connection)
        if self._next is not None:
            self._next.cancel()
        tasks = [task for _, task in self._handshakes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, connection: socket.socket, peer: str) -> None:
        if self._port.context() is None:
            self._start(connection, peer)
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(connection, self._read, connection)
        except OSError:
            # the system has no memory for it
            connection.close()
            return
        self._waiting[connection] = peer, loop.call_later(HANDSHAKE_SECONDS, self._reject, connection, "late")
        self._give_way(self._admission.arrive(connection, peer))

    def _read(self, connection: socket.socket) -> None:
        """The first bytes are there, or the client has closed it."""
        asyncio.get_running_loop().remove_reader(connection)
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self._close(connection)
        elif first != _HANDSHAKE_RECORD:
            self._reject(connection, "handshake")
        else:
            self._give_way(self._admission.speak(connection))
            self._begin_later()

    def _begin_later(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        seconds = self._admission.wait_seconds(now)
        if seconds is not None and self._next is None:
            # under CPU pressure handshakes get half of the CPU
            self._due = now + max(seconds, min(self._late, _MOST_LATE_SECONDS))
            self._next = loop.call_at(self._due, self._begin_next)

    def _begin_next(self) -> None:
        """Begins one handshake. Established connections run before the next one."""
        self._next = None
        now = asyncio.get_running_loop().time()
        self._late = now - self._due
        while (chosen := self._admission.next(now)) is not None:
            connection, peer = chosen
            if not _is_open(connection):
                # its client did not wait
                self._close(connection)
                continue
            self._forget_waiting(connection)
            self._give_way(self._admission.begin(connection, peer, now))
            self._start(connection, peer)
            break
        self._begin_later()

    def _start(self, connection: socket.socket, peer: str) -> None:
        self._handshakes[connection] = peer, asyncio.create_task(self._connect(connection, peer))

    async def _connect(self, connection: socket.socket, peer: str) -> None:
        is_taken = False
        try:
            loop, context = asyncio.get_running_loop(), self._port.context()
            seconds = HANDSHAKE_SECONDS if context is not None else None
            transport, _ = await loop.connect_accepted_socket(
                self._port.protocol, connection, ssl=context, ssl_handshake_timeout=seconds
            )
            is_taken = True
            if self._port.is_allowed(transport):
                self._admission.prove(connection)
                self._make_room(transport, peer)
            else:
                await self._refuse(transport, peer)
        except ssl.SSLError as exc:
            self._count("handshake", peer, error=str(exc))
        except ConnectionAbortedError:
            self._count("late", peer)
        except OSError:
            # the client is gone
            pass
        finally:
            self._handshakes.pop(connection, None)
            self._port.changed()
            self._admission.end(connection)
            if not is_taken:
                connection.close()

    async def _refuse(self, transport: asyncio.BaseTransport, peer: str) -> None:
        """Closes a connection whose certificate is valid but has no allowed name, after time for one response."""
        assert isinstance(transport, asyncio.Transport)
        self._refused.add(transport)
        try:
            await asyncio.sleep(_REFUSAL_SECONDS)
            self._count("name", peer)
        finally:
            self._refused.discard(transport)
            transport.abort()

    def _connected(self) -> list[HttpConnection]:
        """Those whose client may send requests, oldest first."""
        return [each for each in self._port.open_connections() if each.transport not in self._refused]

    async def _wait_for_room(self, connection: socket.socket) -> None:
        """Waits while each connection has a request. Further clients wait in the backlog."""
        try:
            while not self._has_room():
                await self._port.wait_for_change()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _has_room(self) -> bool:
        """Whether another one could be connected, if idle ones gave way."""
        connected = self._connected()
        # without TLS each that has begun is connected soon
        begun = len(self._handshakes) if self._port.context() is None else 0
        return len(connected) + begun < self._most or not all(each.is_busy for each in connected)

    def _make_room(self, newest: asyncio.BaseTransport, peer: str) -> None:
        """Closes the oldest idle connection if there are too many; the newest if all others have a request."""
        connected = self._connected()
        if len(connected) <= self._most:
            return
        idle = (each.transport for each in connected if each.transport is not newest and not each.is_busy)
        gives_way = next(idle, None) or newest
        assert isinstance(gives_way, asyncio.Transport)
        self._count("busy", peer)
        gives_way.abort()

    def _give_way(self, connection: socket.socket | None) -> None:
        if connection is not None:
            self._reject(connection, "crowded")

    def _reject(self, connection: socket.socket, reason: str) -> None:
        peer, handle = self._handshakes.get(connection) or self._waiting[connection]
        self._count(reason, peer)
        handle.cancel()
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        """Closes a waiting connection; the task of a handshake closes its own."""
        if connection in self._waiting:
            self._forget_waiting(connection)
            self._admission.end(connection)
            connection.close()

    def _forget_waiting(self, connection: socket.socket) -> None:
        _, timer = self._waiting.pop(connection)
        timer.cancel()
        asyncio.get_running_loop().remove_reader(connection)

    def _count(self, reason: str, peer: str, **fields: object) -> None:
        self._metrics.rejected.labels(reason=reason).inc()
        self._paced.log(logging.WARNING, "connection rejected", peer, address=peer, reason=reason, **fields)


def _is_open(connection: socket.socket) -> bool:
    """Whether the client could still read a response."""
    with contextlib.suppress(OSError):
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
    return True
