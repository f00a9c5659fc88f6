"""Several byte streams over one Unix socket, as NRI multiplexes them: each frame names the stream that its bytes belong to.

Eight bytes, big endian, before every payload: the stream's id and the payload's length. Opening a stream is not negotiated, so
frames of a stream that is not open here are dropped. Never reads a payload.
Source: containerd/nri pkg/net/multiplex/mux.go @ v0.12.3.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

_HEADER = struct.Struct(">II")
# one whole ttrpc message: what the runtime's side allows
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024 + 10
# The runtime reads through a buffer of this size and gives up ("cannot allocate memory") when a frame with the beginning of a
# message does not fit in; what follows the beginning may have any size.
_FIRST_BYTES = 4096
# Bytes that the runtime has not read yet. It reads at once, or it is stuck.
_MAX_UNSENT_BYTES = 16 * 1024 * 1024

Receive = Callable[[bytes], None]


class BadFrame(Exception):
    """The peer violates the protocol: the start of its next frame is unknown."""


class Decoder:
    """Decodes frames from bytes, wherever they were cut. length_field: its index in the header. what: a frame's name in errors."""

    def __init__(self, header: struct.Struct, length_field: int, max_bytes: int, what: str) -> None:
        self._header, self._length_field, self._max_bytes, self._what = header, length_field, max_bytes, what
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
        """Every frame that is complete by now: the header's fields and the payload. Raises BadFrame for one that is too long."""
        # a message of 4 MiB is copied as seldom as it can be: each time takes milliseconds of the event loop
        if self._buffer:
            self._buffer += data
        source, start, size = self._buffer or data, 0, self._header.size
        try:
            with memoryview(source) as view:
                while len(view) - start >= size:
                    fields = self._header.unpack_from(view, start)
                    length = fields[self._length_field]
                    if length > self._max_bytes:
                        raise BadFrame(f"a {self._what} of {length} bytes exceeds the limit of {self._max_bytes}")
                    end = start + size + length
                    if len(view) < end:
                        return
                    payload = bytes(view[start + size : end])
                    start = end
                    yield fields, payload
        finally:
            if source is data:
                self._buffer += memoryview(data)[start:]
            else:
                del self._buffer[:start]

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here."""
        return not self._buffer


# A decoder of a connection's frames. Fields: stream id, length.
frame_decoder = partial(Decoder, _HEADER, 1, MAX_PAYLOAD_BYTES, "frame")


def frames(stream_id: int, message: bytes) -> bytes:
    """One message of a stream, in as many frames as the runtime's side needs it cut into."""
    return b"".join(
        _HEADER.pack(stream_id, len(piece)) + piece
        for piece in (message[:_FIRST_BYTES], message[_FIRST_BYTES:])
        if piece
    )


class Mux(asyncio.Protocol):
    """A connection. It ends once, with a reason, which is the result of `closed`. peer: the reason's word for the other end."""

    def __init__(self, peer: str) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._peer = peer
        self._decoder = frame_decoder()
        self._streams: dict[int, Receive] = {}
        self._transport: asyncio.Transport | None = None

    def open(self, stream_id: int, receive: Receive) -> None:
        """From now on pass the bytes of this stream to receive, which may raise BadFrame."""
        self._streams[stream_id] = receive

    def write(self, stream_id: int, message: bytes) -> None:
        """Send one whole message of a stream. Does nothing once the connection has ended."""
        if self._transport is None or self.closed.done():
            return
        self._transport.write(frames(stream_id, message))
        if self._transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            self.abort(f"{self._peer} does not read its socket")

    def abort(self, reason: str) -> None:
        """End the connection at once; the first reason counts."""
        if not self.closed.done():
            self.closed.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection once everything written has been sent; the first reason counts."""
        if not self.closed.done():
            self.closed.set_result(reason)
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for (stream_id, _), payload in self._decoder.feed(data):
                receive = self._streams.get(stream_id)
                if self.closed.done():
                    return
                if receive is not None:
                    receive(payload)
        except BadFrame as exc:
            self.abort(f"{self._peer} violates the protocol: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # a peer that closes with something unread resets the connection: that is a normal end too
        if exc is not None and not isinstance(exc, ConnectionError):
            self.abort(f"the connection to {self._peer} broke: {exc}")
        elif self._decoder.is_between_frames:
            self.abort(f"{self._peer} closed the connection")
        else:
            self.abort(f"{self._peer} closed the connection in the middle of a frame")
