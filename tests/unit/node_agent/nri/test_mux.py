"""NRI's frames: the same payloads come out wherever they were cut; invalid frames end the connection."""

import asyncio
import itertools
import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.nri.mux import MAX_PAYLOAD_BYTES, BadFrame, Mux, frame_decoder, frames

IDS = st.integers(0, 2**32 - 1)
PAYLOADS = st.lists(st.tuples(IDS, st.binary(max_size=50)), max_size=8)


def raw(stream_id: int, payload: bytes, length: int | None = None) -> bytes:
    """A frame, which may lie about its length."""
    return struct.pack(">II", stream_id, len(payload) if length is None else length) + payload


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return (data[start:end] for start, end in itertools.pairwise(places))


@given(PAYLOADS, st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_cut_anywhere(payloads: list[tuple[int, bytes]], cuts: list[int]) -> None:
    decoder = frame_decoder()
    data = b"".join(raw(stream_id, payload) for stream_id, payload in payloads)
    found = [frame for piece in pieces(data, cuts) for frame in decoder.feed(piece)]
    assert found == [((stream_id, len(payload)), payload) for stream_id, payload in payloads]
    assert decoder.is_between_frames


@pytest.mark.parametrize("length", [MAX_PAYLOAD_BYTES + 1, 2**31, 2**32 - 1])
def test_too_long_a_frame_is_refused_before_its_bytes_come(length: int) -> None:
    feeding = frame_decoder().feed(raw(1, b"whole") + raw(1, b"", length))
    assert next(feeding) == ((1, 5), b"whole")
    with pytest.raises(BadFrame, match=str(length)):
        next(feeding)


@given(IDS, st.integers(0, 12_000).map(bytes))
@example(1, bytes(4096))
@example(1, bytes(4097))
@example(1, bytes(20_000))
def test_a_message_is_cut_as_the_runtime_reads_it(stream_id: int, message: bytes) -> None:
    """Its reader has 4096 bytes for the beginning, and reads the rest in one."""
    found = list(frame_decoder().feed(frames(stream_id, message)))
    assert {number for (number, _), _ in found} <= {stream_id}
    assert b"".join(payload for _, payload in found) == message
    lengths = min(len(message), 4096), len(message) - 4096
    assert [len(payload) for _, payload in found] == [length for length in lengths if length > 0]


class Wire(asyncio.Transport):
    """What a Mux has written, and how it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.unsent = 0
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"


def connected() -> tuple[Mux, Wire]:
    mux, wire = Mux("the peer"), Wire()
    mux.connection_made(wire)
    return mux, wire


async def test_bytes_go_to_their_stream_alone() -> None:
    mux, _ = connected()
    one, two = list[bytes](), list[bytes]()
    mux.open(1, one.append)
    mux.open(2, two.append)
    mux.data_received(raw(1, b"a") + raw(3, b"unknown") + raw(2, b"b") + raw(1, b"c"))
    assert (one, two, mux.closed.done()) == ([b"a", b"c"], [b"b"], False)


def refuse(data: bytes) -> None:
    raise BadFrame("nonsense")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\xff" * 8, "violates the protocol", id="a frame"),
        pytest.param(raw(1, b"a"), "nonsense", id="a stream"),
    ],
)
async def test_invalid_bytes_end_the_connection_with_their_reason(data: bytes, reason: str) -> None:
    mux, wire = connected()
    mux.open(1, refuse)
    mux.data_received(data)
    assert reason in mux.closed.result()
    assert wire.ended == "aborted"


async def test_nothing_is_received_after_the_end() -> None:
    mux, _ = connected()
    received: list[bytes] = []

    def receive(data: bytes) -> None:
        received.append(data)
        mux.abort("enough")

    mux.open(1, receive)
    mux.data_received(raw(1, b"a") + raw(1, b"b"))
    assert received == [b"a"]


async def test_a_peer_that_does_not_read_is_disconnected() -> None:
    mux, wire = connected()
    wire.unsent = 17 * 1024 * 1024
    mux.write(1, b"more")
    assert mux.closed.result() == "the peer does not read its socket"


@pytest.mark.parametrize(
    ("before", "error", "reason"),
    [
        (b"", None, "the peer closed the connection"),
        (raw(1, b"abc")[:-1], None, "the peer closed the connection in the middle of a frame"),
        (b"", ConnectionResetError(), "the peer closed the connection"),
        (b"", OSError("cable"), "the connection to the peer broke: cable"),
    ],
)
async def test_the_end_has_a_reason(before: bytes, error: Exception | None, reason: str) -> None:
    mux, _ = connected()
    mux.data_received(before)
    mux.connection_lost(error)
    assert mux.closed.result() == reason
