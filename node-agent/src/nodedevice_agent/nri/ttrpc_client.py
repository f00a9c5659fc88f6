"""The half of ttrpc that makes calls.

Source: containerd/ttrpc client.go @ v1.2.9.
"""

import asyncio

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

from nodedevice_agent.nri.ttrpc import (
    REQUEST,
    RESPONSE,
    CallFailed,
    Code,
    Message,
    MessageDecoder,
    Send,
    encode,
)


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
            self._send(encode(Message(number, REQUEST, envelope.SerializeToString())))
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
            if message.kind == RESPONSE and answer is not None and not answer.done():
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
