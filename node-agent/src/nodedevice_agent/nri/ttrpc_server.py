"""The half of ttrpc that answers calls. Never knows what is called; who hands in the handlers does.

Source: containerd/ttrpc server.go @ v1.2.9.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

from nodedevice_agent.nri.ttrpc import (
    DATA,
    MAX_MESSAGE_BYTES,
    REQUEST,
    RESPONSE,
    CallFailed,
    Code,
    Message,
    MessageDecoder,
    Send,
    encode,
)

log = logging.getLogger(__name__)

# Calls that are waited for at once. A runtime makes one at a time; more than this is no runtime.
MAX_CALLS = 256
_MAX_TEXT = 1024

# The method's request, encoded, in; its response, encoded, out. Raises CallFailed; DecodeError for a request that is none.
Handler = Callable[[bytes], bytes | Coroutine[None, None, bytes]]


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
        if message.kind == DATA:
            raise CallFailed(Code.INVALID_ARGUMENT, "no call here has a stream of messages")
        if message.kind != REQUEST:
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
        self._send(encode(Message(number, RESPONSE, response)))

    def _fail(self, number: int, error: CallFailed) -> None:
        status = ttrpc_pb2.Status(code=error.code, message=_sendable(str(error)))
        self._send(encode(Message(number, RESPONSE, ttrpc_pb2.Response(status=status).SerializeToString())))


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
