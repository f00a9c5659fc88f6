"""Files are read one after the other, beside the event loop; one that hangs holds nobody up."""

import asyncio
import threading
from functools import partial

import pytest
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.patient_reads import ask


async def test_reads_are_made_in_turn_in_threads_that_belong_to_nobody_else() -> None:
    reads, under_way = FileReads(), list[int]()

    def read(number: int) -> int:
        under_way.append(number)
        assert under_way == [number]
        assert threading.current_thread() is not threading.main_thread()
        under_way.remove(number)
        return number

    assert await asyncio.gather(*(reads.run(partial(read, number)) for number in range(5))) == list(range(5))


async def test_one_that_hangs_gives_up_its_turn() -> None:
    reads, ends = FileReads(), threading.Event()

    def hangs(path: str) -> bool:
        return ends.wait()

    try:
        for _ in range(3):
            with pytest.raises(OSError, match="does not respond"):
                await reads.run(partial(ask, hangs, "/dev/one"))
            assert await reads.run(lambda: "read") == "read"
    finally:
        ends.set()


async def test_one_that_computes_keeps_its_turn() -> None:
    """However long: two that compute leave the loop a third of the interpreter."""
    reads, computes, ends = FileReads(), threading.Event(), threading.Event()

    def compute() -> None:
        computes.set()
        assert ends.wait(60)

    first = asyncio.create_task(reads.run(compute))
    await asyncio.to_thread(computes.wait, 60)
    second = asyncio.create_task(reads.run(ends.is_set))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    ends.set()
    await first
    assert await second


async def test_what_it_raises_is_raised_and_the_next_has_its_turn() -> None:
    reads = FileReads()

    def fail() -> None:
        raise FileNotFoundError("no such device")

    with pytest.raises(FileNotFoundError, match="no such device"):
        await reads.run(fail)
    assert await reads.run(lambda: 1) == 1


async def test_nobody_waits_for_one_that_was_given_up() -> None:
    reads, ends = FileReads(), threading.Event()
    hanging = asyncio.create_task(reads.run(ends.wait))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert await reads.run(lambda: 1) == 1
    ends.set()
    for thread in threading.enumerate():
        if thread.name == "files":
            # it ends without a failure: what is raised in a thread fails the test
            thread.join()
