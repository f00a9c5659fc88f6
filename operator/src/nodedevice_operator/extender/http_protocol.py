"""One connection of the extender's port: reads HTTP/1.1 requests, one at a time, and writes their responses.

Bounded are the head, the body, the time of a request, and the time between two of them. httptools is llhttp, the parser of Node.js.
Source: RFC 9112.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import httptools

# 5,000 nodes by name are 0.2 MB; 5,000 whole Nodes, for a scheduler that is not nodeCacheCapable, some 40 times as much
MOST_REQUEST_BYTES: Final = 16 * 1024 * 1024
_MOST_HEAD_BYTES: Final = 32 * 1024
_REQUEST_SECONDS: Final = 10.0
# from the connection to its first request, which the client is sending: it does not give way then
_FIRST_SECONDS: Final = 1.0
# of a connection without a request; longer than the 90 s after which kube-scheduler closes it itself
_IDLE_SECONDS: Final = 120.0
# to drain a request after an early response, so that its sender reads the response
_LINGERING_SECONDS: Final = 1.0
_EXPECT: Final = b"expect"
_LENGTH: Final = b"content-length"
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Response:
    """body: JSON with status 200 if is_json, else text."""

    status: int
    body: bytes
    is_json: bool = False


_TOO_LONG: Final = Response(
    413,
    f"the request is longer than {MOST_REQUEST_BYTES} bytes; set nodeCacheCapable: true for this extender\n".encode(),
)


def _nothing() -> None: ...


class Handler(Protocol):
    """What the port does with connections and their requests."""

    def connected(self, connection: "HttpConnection") -> None: ...

    def lost(self, connection: "HttpConnection") -> None: ...

    def changed(self) -> None:
        """Called when a connection has no request any more."""

    def refusal(self, connection: "HttpConnection", method: str, path: str) -> Response | None:
        """The response to a request whose body is not read."""

    async def respond(self, path: str, body: bytes, began: float) -> Response:
        """began: when the head of the request had arrived, by the clock of the loop."""

    def rejected(self, path: str) -> None:
        """Called for a request that is too long or too slow."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it as a task that is kept until its end."""


class HttpConnection(asyncio.BufferedProtocol):
    """is_busy: its first request is expected, or a request has begun whose response is not written yet."""

    def __init__(self, handler: Handler, buffer: memoryview) -> None:
        """buffer: where asyncio puts received bytes, which are read at once. All connections of a loop may share one."""
        self._handler, self._buffer = handler, buffer
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # calls `_then` when `_due`, by the clock of the loop
        self._timer: asyncio.TimerHandle | None = None
        self._due, self._then = math.inf, _nothing
        self._url, self._body = b"", list[bytes]()
        self._head_bytes = self._body_bytes = 0
        self._began = 0.0
        self._is_receiving = self._has_head = self._is_responding = self._is_draining = False
        # whether the limit of the request that is received has begun
        self._is_timed = False
        self._refusal: Response | None = None
        self.is_busy = True
        self.transport: asyncio.Transport | None = None

    # -- asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._wait(_FIRST_SECONDS, self._be_idle)
        self._handler.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_draining = True
        self._stop_waiting()
        self._handler.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_draining:
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            self._end(Response(400, b"only HTTP/1.1 is served here\n"))
        except httptools.HttpParserError as exc:
            self._end(Response(400, f"the request is not valid HTTP/1.1: {exc}\n".encode()))
        if self._is_draining or not self._is_receiving:
            return
        if not self._is_timed:
            self._is_timed = True
            self._wait(_REQUEST_SECONDS, self._late)
        if not self._has_head:
            self._head_bytes += nbytes
            if self._head_bytes > _MOST_HEAD_BYTES:
                self._end(Response(431, b"the head of the request is too long\n"))

    # -- callbacks of the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._is_responding:
            # kube-scheduler waits for each response
            self._end(None)
            return
        self._url, self._body, self._refusal = b"", [], None
        self._head_bytes = self._body_bytes = 0
        self._has_head = self._is_timed = False
        self.is_busy = self._is_receiving = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == len(_EXPECT) and name.lower() == _EXPECT and value.lower() == b"100-continue":
            self._send(_CONTINUE)
        elif len(name) == len(_LENGTH) and name.lower() == _LENGTH and int(value or 0) > MOST_REQUEST_BYTES:
            self._refusal = _TOO_LONG

    def on_headers_complete(self) -> None:
        self._has_head, self._began = True, self._loop.time()
        if self._refusal is not None:
            self._reject(self._refusal)
        else:
            self._refusal = self._handler.refusal(self, self._parser.get_method().decode(), self._path)

    def on_body(self, body: bytes) -> None:
        if self._is_draining:
            return
        self._body_bytes += len(body)
        if self._body_bytes > MOST_REQUEST_BYTES:
            self._reject(_TOO_LONG)
        elif self._refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._is_draining or self._parser.should_upgrade():
            return
        self._due = math.inf
        self._is_receiving, self._is_responding = False, True
        if self._refusal is not None:
            self._write(self._refusal)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        self._handler.run(self._respond(body))

    # -- responses ----------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        return self._url.partition(b"?")[0].decode("ascii", "replace")

    async def _respond(self, body: bytes) -> None:
        self._write(await self._handler.respond(self._path, body, self._began))

    def _late(self) -> None:
        problem = f"the request did not arrive within {_REQUEST_SECONDS:g} s\n"
        self._reject(Response(408, problem.encode()))

    def _reject(self, response: Response) -> None:
        if not self._is_draining:
            self._handler.rejected(self._path)
            self._end(response)

    def _write(self, response: Response) -> None:
        if self._is_draining:
            return
        is_kept = self._parser.should_keep_alive()
        self._send(_encoded(response, is_kept=is_kept))
        self._is_responding = False
        self._be_idle()
        if not is_kept:
            self._is_draining = True
            assert self.transport is not None
            self.transport.close()

    def _be_idle(self) -> None:
        assert self.transport is not None
        self.is_busy = False
        self._wait(_IDLE_SECONDS, self.transport.close)
        self._handler.changed()

    def _end(self, response: Response | None) -> None:
        """Responds before the end of the request, and reads for a moment, so that the client gets the response."""
        if self._is_draining:
            return
        self._is_draining = True
        self.is_busy = False
        self._handler.changed()
        assert self.transport is not None
        if response is None:
            self.transport.abort()
            return
        self._send(_encoded(response, is_kept=False))
        self._wait(_LINGERING_SECONDS, self.transport.close)

    def _send(self, octets: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(octets)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after that time, in place of the call before it. The timer of an earlier one is kept for it."""
        self._due, self._then = self._loop.time() + seconds, then
        if self._timer is None or self._timer.when() > self._due:
            self._stop_waiting()
            self._timer = self._loop.call_at(self._due, self._timed)

    def _timed(self) -> None:
        self._timer = None
        if self._loop.time() >= self._due:
            self._then()
        elif self._due < math.inf:
            self._timer = self._loop.call_at(self._due, self._timed)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _encoded(response: Response, *, is_kept: bool) -> bytes:
    content_type = _JSON if response.is_json else _TEXT
    close = b"" if is_kept else b"Connection: close\r\n"
    head = b"%sContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n"
    return head % (_LINES[response.status], content_type, len(response.body), close) + response.body
