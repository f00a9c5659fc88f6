"""The loop whose clock jumps: seconds pass where all tasks wait, and only there."""

import asyncio
import socket
import threading

import pytest

from tests.fakes.virtual_time import VirtualTimeLoop, virtual_time


@virtual_time
async def test_hours_pass_at_once() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    order: list[str] = []

    async def append(word: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(word)

    await asyncio.gather(append("third", 7200), append("first", 0.5), append("second", 3600))
    assert order == ["first", "second", "third"]
    assert loop.time() - began == pytest.approx(7200)


@virtual_time
async def test_a_hang_ends_at_once() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.Event().wait()


@virtual_time
async def test_no_time_passes_beside_a_thread() -> None:
    let_go = threading.Event()
    threading.Timer(0.05, let_go.set).start()
    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(let_go.wait)


@virtual_time
async def test_no_time_passes_while_there_is_something_to_read() -> None:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=ours)
    reader, other = await asyncio.open_unix_connection(sock=theirs)
    writer.write(b"hello\n")
    async with asyncio.timeout(0.001):
        assert await reader.readline() == b"hello\n"
    writer.close()
    other.close()


async def test_only_a_test_that_asks_for_it_has_it() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
