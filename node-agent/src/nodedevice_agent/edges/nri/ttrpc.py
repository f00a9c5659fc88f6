"""ttrpc, containerd's RPC protocol, over one byte stream: the half that answers calls and the half that makes them.

Ten bytes, big endian, before every message: length, the call's number (odd, growing), kind and flags. Only calls with one
request and one response, which is all that NRI has. Never knows what is called; who hands in the handlers does.
Source: containerd/ttrpc channel.go, server.go, client.go @ v1.2.9.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

from nodedevice_agent.edges.nri.mux import BadFrame

log = logging.getLogger(__name__)

_HEADER = struct.Struct(">IIBB")
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# Calls that are waited for at once. A runtime makes one at a time; more than this is no runtime.
MAX_CALLS = 256
_MAX_TEXT = 1024
_REQUEST, _RESPONSE, _DATA = 1, 2, 3


class Code(IntEnum):
    """How a call went: gRPC's codes, of which only these are made here."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallFailed(Exception):
    """A call's answer that is an error. code: the peer's, which need not be one of Code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Message(NamedTuple):
    number: int
    kind: int
    payload: bytes


# The method's request, encoded, in; its response, encoded, out. Raises CallFailed; DecodeError for a request that is none.
Handler = Callable[[bytes], bytes | Coroutine[None, None, bytes]]
Send = Callable[[bytes], None]


class MessageDecoder:
    """Messages out of bytes, however they were cut on their way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Every message that is complete by now. Raises BadFrame for one that is too long."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                length, number, kind, _ = _HEADER.unpack_from(self._buffer, start)
                if length > MAX_MESSAGE_BYTES:
                    raise BadFrame(f"a message of {length} bytes; {MAX_MESSAGE_BYTES} is the most")
                end = start + _HEADER.size + length
                if len(self._buffer) < end:
                    return
                payload = bytes(self._buffer[start + _HEADER.size : end])
                start = end
                yield Message(number, kind, payload)
        finally:
            del self._buffer[:start]


def encode(message: Message) -> bytes:
    """As it is on the wire."""
    return _HEADER.pack(len(message.payload), message.number, message.kind, 0) + message.payload


class Server:
    """Answers calls. methods: by service and method name; those not there are answered with UNIMPLEMENTED.

    Calls are begun in the order in which they came. A handler that answers at once is answered for before the next call is
    looked at; one that returns a coroutine holds up nobody.
    """

    def __init__(self, send: Send, methods: Mapping[tuple[str, str], Handler]) -> None:
        self._send = send
        self._methods = methods
        self._decoder = MessageDecoder()
        self._last_number = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, data: bytes) -> None:
        """Bytes of the stream. Raises BadFrame."""
        for message in self._decoder.feed(data):
            try:
                self._take(message)
            except CallFailed as exc:
                self._fail(message.number, exc)

    def close(self) -> None:
        """Give up what is being worked on."""
        for task in self._tasks:
            task.cancel()

    def _take(self, message: Message) -> None:
        if message.kind == _DATA:
            raise CallFailed(Code.INVALID_ARGUMENT, "no call here has a stream of messages")
        if message.kind != _REQUEST:
            return  # a kind that is yet to be invented, as ttrpc asks for
        if message.number % 2 != 1 or message.number <= self._last_number:
            raise CallFailed(Code.INVALID_ARGUMENT, f"call number {message.number} is even or not a new one")
        self._last_number = message.number
        try:
            request = ttrpc_pb2.Request.FromString(message.payload)
        except DecodeError:
            raise CallFailed(Code.INVALID_ARGUMENT, "no ttrpc request") from None
        handler = self._methods.get((request.service, request.method))
        if handler is None:
            raise CallFailed(Code.UNIMPLEMENTED, f"method {request.service}/{request.method}")
        self._begin(message.number, request, handler)

    def _begin(self, number: int, request: ttrpc_pb2.Request, handler: Handler) -> None:
        with _Translated(request.method):
            answer = handler(request.payload)
        if isinstance(answer, bytes):
            self._answer(number, answer)
            return
        if len(self._tasks) >= MAX_CALLS:
            answer.close()
            raise CallFailed(Code.RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls are waited for already")
        seconds = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
        task = asyncio.create_task(self._finish(number, request.method, answer, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # a task that is cancelled before it begins leaves its coroutine behind, which Python complains about
        task.add_done_callback(lambda _: answer.close())

    async def _finish(
        self, number: int, method: str, coroutine: Coroutine[None, None, bytes], seconds: float | None
    ) -> None:
        try:
            with _Translated(method):
                async with asyncio.timeout(seconds):
                    answer = await coroutine
            self._answer(number, answer)
        except CallFailed as exc:
            self._fail(number, exc)

    def _answer(self, number: int, payload: bytes) -> None:
        response = ttrpc_pb2.Response(payload=payload).SerializeToString()
        if len(response) > MAX_MESSAGE_BYTES:
            raise CallFailed(
                Code.RESOURCE_EXHAUSTED, f"the answer has {len(response)} bytes; {MAX_MESSAGE_BYTES} is the most"
            )
        self._send(encode(Message(number, _RESPONSE, response)))

    def _fail(self, number: int, error: CallFailed) -> None:
        status = ttrpc_pb2.Status(code=error.code, message=_sendable(str(error)))
        self._send(encode(Message(number, _RESPONSE, ttrpc_pb2.Response(status=status).SerializeToString())))


class Client:
    """Makes calls."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._decoder = MessageDecoder()
        self._next_number = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._closed = ""

    async def call(self, service: str, method: str, request: bytes, timeout_seconds: float) -> bytes:
        """The method's response, encoded. Raises CallFailed, also when no answer comes in time or the connection ends."""
        if self._closed:
            raise CallFailed(Code.UNAVAILABLE, self._closed)
        number, self._next_number = self._next_number, self._next_number + 2
        envelope = ttrpc_pb2.Request(
            service=service, method=method, payload=request, timeout_nano=int(timeout_seconds * 1e9)
        )
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(encode(Message(number, _REQUEST, envelope.SerializeToString())))
            async with asyncio.timeout(timeout_seconds):
                return await answer
        except TimeoutError:
            raise CallFailed(Code.DEADLINE_EXCEEDED, f"no answer to {method} in {timeout_seconds:g} s") from None
        finally:
            del self._waiting[number]

    def receive(self, data: bytes) -> None:
        """Bytes of the stream. Raises BadFrame."""
        for message in self._decoder.feed(data):
            answer = self._waiting.get(message.number)
            # nobody waits for an answer that comes too late
            if message.kind == _RESPONSE and answer is not None and not answer.done():
                _settle(answer, message.payload)

    def close(self, reason: str) -> None:
        """No answer will come any more."""
        self._closed = reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(CallFailed(Code.UNAVAILABLE, reason))


def _settle(answer: asyncio.Future[bytes], payload: bytes) -> None:
    try:
        response = ttrpc_pb2.Response.FromString(payload)
    except DecodeError:
        answer.set_exception(CallFailed(Code.INTERNAL, "the answer is no ttrpc response"))
        return
    if response.status.code:
        answer.set_exception(CallFailed(response.status.code, response.status.message))
    else:
        answer.set_result(response.payload)


class _Translated:
    """Whatever a handler raises leaves as CallFailed; what it did not mean to raise is logged."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        match error:
            case None | CallFailed():
                return
            case DecodeError():
                raise CallFailed(Code.INVALID_ARGUMENT, f"no request of {self._method}") from None
            case TimeoutError():
                raise CallFailed(Code.DEADLINE_EXCEEDED, f"{self._method} took longer than the caller waits") from None
            case Exception():
                log.error("a call failed on our side", extra={"method": self._method}, exc_info=error)
                raise CallFailed(Code.INTERNAL, f"{self._method} failed in the plugin; its log says how") from error


def _sendable(text: str) -> str:
    """Bounded, and without the halves of characters that protobuf does not take."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()
