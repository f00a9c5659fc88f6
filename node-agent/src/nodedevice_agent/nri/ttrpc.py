"""ttrpc, containerd's RPC protocol, over one byte stream: messages on the wire, and both ends of a call.

Ten bytes, big endian, before every message: length, the call's number (odd, increasing), kind and flags. Only calls with one
request and one response, which is all that NRI has. The server end knows no methods: its owner passes the handlers.
Source: containerd/ttrpc channel.go, client.go and server.go @ v1.2.9.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import partial

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.ttrpc import ttrpc_pb2
from nodedevice_common.text import clean

from nodedevice_agent.nri.mux import Decoder

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">IIBB")
# a request that is copied and decoded in a turn of its own
_LONG_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
REQUEST, RESPONSE, DATA = 1, 2, 3
# Calls in progress at once. A runtime makes one at a time; a peer with more is refused.
MAX_CALLS = 256
_MAX_TEXT = 1024

Send = Callable[[bytes], None]
# The method's encoded request in, its encoded response out. Raises CallFailed; DecodeError for an invalid request.
Handler = Callable[[bytes], bytes | Coroutine[None, None, bytes]]


class Code(IntEnum):
    """The result of a call: the subset of gRPC's codes in use here."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallFailed(Exception):
    """A call that ended with an error. code: the peer's, which need not be a Code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


# A decoder of a stream's messages. Fields: length, number, kind, flags.
message_decoder = partial(Decoder, _HEADER, 0, MAX_MESSAGE_BYTES, "message")


def encode(number: int, kind: int, payload: bytes) -> bytes:
    """Encode the message for the wire."""
    return _HEADER.pack(len(payload), number, kind, 0) + payload


class TtrpcClient:
    """The end that makes calls."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._decoder = message_decoder()
        self._next_number = 1
        self._pending: dict[int, asyncio.Future[bytes]] = {}

    async def call(self, service: str, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """The method's encoded response. Raises CallFailed, also for a timeout. Cancel it when the connection ends."""
        number, self._next_number = self._next_number, self._next_number + 2
        envelope = ttrpc_pb2.Request(
            service=service, method=method, payload=request, timeout_nano=int(timeout_seconds * 1e9)
        )
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[number] = response
        try:
            self._send(encode(number, REQUEST, envelope.SerializeToString()))
            async with asyncio.timeout(timeout_seconds):
                answer = ttrpc_pb2.Response.FromString(await response)
        except TimeoutError:
            raise CallFailed(Code.DEADLINE_EXCEEDED, f"no response to {method} within {timeout_seconds:g} s") from None
        except DecodeError:
            raise CallFailed(Code.INTERNAL, "invalid ttrpc response") from None
        finally:
            del self._pending[number]
        if answer.status.code:
            raise CallFailed(answer.status.code, answer.status.message)
        return answer.payload

    def receive(self, data: bytes) -> None:
        """Bytes of the stream. Raises BadFrame."""
        for (_, number, kind, _), payload in self._decoder.feed(data):
            response = self._pending.get(number)
            # a response that comes after its call has timed out is dropped
            if kind == RESPONSE and response is not None and not response.done():
                response.set_result(payload)


class TtrpcServer:
    """The end that handles calls, in their order. methods: by service and method name; any other call fails with UNIMPLEMENTED.

    The response of a handler that returns bytes is sent before the next call is handled; a coroutine delays no other call.
    """

    def __init__(self, send: Send, methods: Mapping[tuple[str, str], Handler]) -> None:
        self._send = send
        self._methods = methods
        self._decoder = message_decoder()
        self._last_number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[int, int, bytes]] = deque()

    def receive(self, data: bytes) -> None:
        """Bytes of the stream. Raises BadFrame."""
        for (_, number, kind, _), payload in self._decoder.feed(data):
            if self._waiting or len(payload) > _LONG_BYTES:
                self._waiting.append((number, kind, payload))
                if len(self._waiting) == 1:
                    asyncio.get_running_loop().call_soon(self._handle_waiting)
            else:
                self._handle_one(number, kind, payload)

    def _handle_waiting(self) -> None:
        """A long request, or what came after it: its bytes took a turn of the event loop, and this is the next one."""
        while self._waiting:
            request = self._waiting.popleft()
            is_next_long = bool(self._waiting) and len(self._waiting[0][2]) > _LONG_BYTES
            if is_next_long:
                asyncio.get_running_loop().call_soon(self._handle_waiting)
            self._handle_one(*request)
            if is_next_long:
                return

    def _handle_one(self, number: int, kind: int, payload: bytes) -> None:
        try:
            self._handle(number, kind, payload)
        except CallFailed as exc:
            self._fail(number, exc)

    def close(self) -> None:
        """Cancel every pending call."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()

    def _handle(self, number: int, kind: int, payload: bytes) -> None:
        if kind == DATA:
            raise CallFailed(Code.INVALID_ARGUMENT, "streaming calls are not supported")
        if kind != REQUEST:
            return  # ttrpc requires that unknown kinds are ignored
        if number % 2 != 1 or number <= self._last_number:
            raise CallFailed(Code.INVALID_ARGUMENT, f"call number {number} is even or not a new one")
        self._last_number = number
        try:
            request = ttrpc_pb2.Request.FromString(payload)
        except DecodeError:
            raise CallFailed(Code.INVALID_ARGUMENT, "invalid ttrpc request") from None
        handler = self._methods.get((request.service, request.method))
        if handler is None:
            raise CallFailed(Code.UNIMPLEMENTED, f"method {request.service}/{request.method}")
        self._begin(number, request, handler)

    def _begin(self, number: int, request: ttrpc_pb2.Request, handler: Handler) -> None:
        with _translated_errors(request.method):
            response = handler(request.payload)
        if isinstance(response, bytes):
            self._respond(number, response)
            return
        if len(self._tasks) >= MAX_CALLS:
            response.close()
            raise CallFailed(Code.RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls are pending already")
        seconds = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
        task = asyncio.create_task(self._finish(number, request.method, response, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # a task that is cancelled before it begins never awaits its coroutine, which Python warns about
        task.add_done_callback(lambda _: response.close())

    async def _finish(
        self, number: int, method: str, coroutine: Coroutine[None, None, bytes], seconds: float | None
    ) -> None:
        try:
            with _translated_errors(method):
                async with asyncio.timeout(seconds):
                    response = await coroutine
            self._respond(number, response)
        except CallFailed as exc:
            self._fail(number, exc)

    def _respond(self, number: int, payload: bytes) -> None:
        response = ttrpc_pb2.Response(payload=payload).SerializeToString()
        if len(response) > MAX_MESSAGE_BYTES:
            message = f"the response of {len(response)} bytes exceeds the limit of {MAX_MESSAGE_BYTES}"
            raise CallFailed(Code.RESOURCE_EXHAUSTED, message)
        self._send(encode(number, RESPONSE, response))

    def _fail(self, number: int, error: CallFailed) -> None:
        message = clean(str(error)[:_MAX_TEXT])
        status = ttrpc_pb2.Status(code=error.code, message=message)
        self._send(encode(number, RESPONSE, ttrpc_pb2.Response(status=status).SerializeToString()))


@contextmanager
def _translated_errors(method: str) -> Iterator[None]:
    """Turns every exception of a handler into CallFailed; an unexpected one is logged."""
    try:
        yield
    except CallFailed:
        raise
    except DecodeError:
        raise CallFailed(Code.INVALID_ARGUMENT, f"invalid {method} request") from None
    except TimeoutError:
        raise CallFailed(Code.DEADLINE_EXCEEDED, f"{method} exceeded the caller's timeout") from None
    except Exception as exc:
        log.exception("call handler failed", extra={"method": method})
        raise CallFailed(Code.INTERNAL, f"{method} failed in the plugin; see its log") from exc
