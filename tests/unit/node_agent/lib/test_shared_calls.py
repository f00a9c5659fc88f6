"""Callers of one call: how many runs they cost, and who gets a failure."""

import asyncio

import pytest
from nodedevice_agent.lib.shared_calls import SharedCall


class Call:
    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.goes_on = asyncio.Event()
        self.fails = False

    async def run(self) -> None:
        assert self.begun == self.ended, "one at a time"
        self.begun += 1
        await self.goes_on.wait()
        self.ended += 1
        if self.fails:
            raise ZeroDivisionError


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_during_a_run_share_the_next_one_and_it_ends_whoever_gives_up() -> None:
    call = Call()
    shared = SharedCall(call.run)
    first = asyncio.create_task(shared())
    await turns()
    others = [asyncio.create_task(shared()) for _ in range(5)]
    await turns()
    assert call.begun == 1
    for task in (first, *others[:3]):
        task.cancel()
    call.goes_on.set()
    await asyncio.gather(*others[3:])
    assert (call.begun, call.ended) == (2, 2)


async def test_each_caller_gets_the_failure_and_the_next_one_runs_it_again() -> None:
    call = Call()
    call.goes_on.set()
    shared, call.fails = SharedCall(call.run), True
    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError] * 2
    with pytest.raises(ZeroDivisionError):
        await shared()
    call.fails = False
    await shared()
    assert call.begun == 3
