"""ttrpc: calls and responses over bytes cut anywhere; an error for every invalid message, and a bound on every wait."""

import asyncio
import struct
from collections.abc import Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.nri import ttrpc
from nodedevice_agent.nri.mux import BadFrame
from nodedevice_agent.nri.ttrpc import (
    DATA,
    MAX_MESSAGE_BYTES,
    REQUEST,
    RESPONSE,
    CallFailed,
    Code,
    TtrpcClient,
    TtrpcServer,
    encode,
    message_decoder,
)
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

MESSAGES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=50)), max_size=8)


@given(MESSAGES, st.integers(1, 20))
def test_messages_cut_anywhere(messages: list[tuple[int, int, bytes]], size: int) -> None:
    decoder = message_decoder()
    data = b"".join(encode(*message) for message in messages)
    found = [m for start in range(0, len(data), size) for m in decoder.feed(data[start : start + size])]
    assert found == [((len(payload), number, kind, 0), payload) for number, kind, payload in messages]


@pytest.mark.parametrize("length", [MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_too_long_a_message_is_refused_before_its_bytes_come(length: int) -> None:
    with pytest.raises(BadFrame, match=str(length)):
        list(message_decoder().feed(struct.pack(">IIBB", length, 1, REQUEST, 0)))


def test_the_header_on_the_wire() -> None:
    assert encode(7, RESPONSE, b"abc") == b"\0\0\0\x03\0\0\0\x07\x02\0abc"


class Peer:
    """A TtrpcServer, its responses, and a way to call it."""

    def __init__(self, **methods: ttrpc.Handler) -> None:
        self.answers: asyncio.Queue[tuple[int, ttrpc_pb2.Response]] = asyncio.Queue()
        self.server = TtrpcServer(self._sent, {("s", name): handler for name, handler in methods.items()})
        self._decoder = message_decoder()

    def _sent(self, data: bytes) -> None:
        for (_, number, kind, _), payload in self._decoder.feed(data):
            assert kind == RESPONSE
            self.answers.put_nowait((number, ttrpc_pb2.Response.FromString(payload)))

    def ask(self, number: int, method: str, payload: bytes = b"", service: str = "s", timeout_nano: int = 0) -> None:
        request = ttrpc_pb2.Request(service=service, method=method, payload=payload, timeout_nano=timeout_nano)
        self.server.receive(encode(number, REQUEST, request.SerializeToString()))

    async def answered(self) -> tuple[int, int, bytes]:
        """Number, code and payload of the next answer."""
        async with asyncio.timeout(60):
            number, response = await self.answers.get()
        return number, response.status.code, response.payload


def upper(payload: bytes) -> bytes:
    return payload.upper()


def refuse(payload: bytes) -> bytes:
    raise CallFailed(Code.UNAVAILABLE, "half a character: \ud800")


def break_down(payload: bytes) -> bytes:
    raise RuntimeError("bug")


async def for_ever(payload: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


async def later(payload: bytes) -> bytes:
    await asyncio.sleep(0)
    return payload.upper()


async def refuse_later(payload: bytes) -> bytes:
    await asyncio.sleep(0)
    return refuse(payload)


async def test_calls_are_handled_in_order() -> None:
    peer = Peer(upper=upper, later=later)
    peer.ask(1, "upper", b"a")
    peer.ask(3, "later", b"b")
    peer.ask(9, "upper", b"c")
    assert [await peer.answered() for _ in range(3)] == [(1, 0, b"A"), (9, 0, b"C"), (3, 0, b"B")]


@pytest.mark.parametrize(
    ("number", "method", "service", "code"),
    [
        (1, "nothing", "s", Code.UNIMPLEMENTED),
        (1, "upper", "other", Code.UNIMPLEMENTED),
        (2, "upper", "s", Code.INVALID_ARGUMENT),
        (1, "refuse", "s", Code.UNAVAILABLE),
        (1, "refuse_later", "s", Code.UNAVAILABLE),
        (1, "break_down", "s", Code.INTERNAL),
    ],
)
async def test_an_impossible_call_is_an_error(number: int, method: str, service: str, code: Code) -> None:
    peer = Peer(upper=upper, refuse=refuse, refuse_later=refuse_later, break_down=break_down)
    peer.ask(number, method, service=service)
    assert await peer.answered() == (number, code, b"")
    peer.ask(11, "upper", b"a")
    assert await peer.answered() == (11, 0, b"A")


async def test_a_number_is_used_once() -> None:
    peer = Peer(upper=upper)
    peer.ask(5, "upper", b"a")
    peer.ask(5, "upper", b"b")
    peer.ask(3, "upper", b"c")
    assert [await peer.answered() for _ in range(3)] == [
        (5, 0, b"A"),
        (5, Code.INVALID_ARGUMENT, b""),
        (3, Code.INVALID_ARGUMENT, b""),
    ]


async def test_streams_are_refused_and_unknown_kinds_ignored() -> None:
    peer = Peer(upper=upper)
    peer.server.receive(encode(1, DATA, b"x"))
    peer.server.receive(encode(1, 77, b"x") + encode(1, RESPONSE, b"x"))
    peer.ask(3, "upper", b"a")
    assert [await peer.answered() for _ in range(2)] == [(1, Code.INVALID_ARGUMENT, b""), (3, 0, b"A")]
    assert peer.answers.empty()


async def test_the_callers_timeout_bounds_a_call() -> None:
    peer = Peer(for_ever=for_ever)
    peer.ask(1, "for_ever", timeout_nano=1_000_000)
    assert await peer.answered() == (1, Code.DEADLINE_EXCEEDED, b"")


async def test_pending_calls_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttrpc, "MAX_CALLS", 2)
    peer = Peer(for_ever=for_ever, upper=upper)
    for number in 1, 3, 5:
        peer.ask(number, "for_ever")
    assert await peer.answered() == (5, Code.RESOURCE_EXHAUSTED, b"")
    peer.ask(7, "upper", b"a")
    assert await peer.answered() == (7, 0, b"A")
    peer.server.close()


async def test_closing_cancels_pending_calls() -> None:
    ended = asyncio.Event()

    async def waits(payload: bytes) -> bytes:
        try:
            return await for_ever(payload)
        finally:
            ended.set()

    peer = Peer(waits=waits, later=later)
    peer.ask(1, "waits")
    peer.ask(3, "later")
    await peer.answered()
    peer.server.close()
    async with asyncio.timeout(60):
        await ended.wait()
    assert peer.answers.empty()


class Caller:
    """A TtrpcClient, and a peer whose responses the test sets."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[tuple[int, ttrpc_pb2.Request]] = asyncio.Queue()
        self.client = TtrpcClient(self._sent)
        self._decoder = message_decoder()

    def _sent(self, data: bytes) -> None:
        for (_, number, kind, _), payload in self._decoder.feed(data):
            assert kind == REQUEST
            self.sent.put_nowait((number, ttrpc_pb2.Request.FromString(payload)))

    def call(self, seconds: float = 30) -> Coroutine[None, None, bytes]:
        return self.client.call("s", "m", b"in", seconds)

    def answer(self, number: int, payload: bytes = b"", code: int = 0, kind: int = RESPONSE) -> None:
        status = ttrpc_pb2.Status(code=code, message="why") if code else None
        response = ttrpc_pb2.Response(status=status, payload=payload).SerializeToString()
        self.client.receive(encode(number, kind, response))


async def test_a_call_and_its_response() -> None:
    caller = Caller()
    first, second = asyncio.create_task(caller.call()), asyncio.create_task(caller.call())
    numbers = []
    for _ in range(2):
        number, request = await caller.sent.get()
        numbers.append(number)
        assert (request.service, request.method, request.payload) == ("s", "m", b"in")
        assert request.timeout_nano == 30_000_000_000
    assert numbers == [1, 3]
    # responses to unknown calls and other messages change nothing
    caller.answer(7, b"unknown")
    caller.answer(1, b"data", kind=DATA)
    caller.answer(3, b"second")
    caller.answer(1, b"first")
    assert [await first, await second] == [b"first", b"second"]
    caller.answer(1, b"again")


async def test_an_error_is_raised_with_its_code() -> None:
    caller = Caller()
    call = asyncio.create_task(caller.call())
    await caller.sent.get()
    caller.answer(1, code=77)
    with pytest.raises(CallFailed, match="why") as caught:
        await call
    assert caught.value.code == 77


async def test_a_response_that_times_out() -> None:
    caller = Caller()
    with pytest.raises(CallFailed, match="no response to m") as caught:
        await caller.call(seconds=0.001)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    caller.answer(1, b"too late")
