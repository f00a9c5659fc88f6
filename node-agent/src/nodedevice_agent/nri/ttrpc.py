"""ttrpc, containerd's RPC protocol, over one byte stream: messages on the wire, and how a call may end.

Ten bytes, big endian, before every message: length, the call's number (odd, growing), kind and flags. Only calls with one
request and one response, which is all that NRI has. Who answers calls is in ttrpc_server, who makes them in ttrpc_client.
Source: containerd/ttrpc channel.go @ v1.2.9.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from nodedevice_agent.nri.mux import BadFrame

_HEADER = struct.Struct(">IIBB")
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
REQUEST, RESPONSE, DATA = 1, 2, 3

# one whole message
Send = Callable[[bytes], None]


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
