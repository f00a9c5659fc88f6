"""One run at a time, and who gets its failure. kubelet/test_reader.py has callers that share a run, and that give up."""

import asyncio

import pytest
from nodedevice_agent.lib.shared_calls import SharedCall


async def test_a_caller_during_a_run_waits_for_the_next_one() -> None:
    under_way, goes_on = [0], asyncio.Event()

    async def run() -> None:
        under_way.append(under_way[-1] + 1)
        await goes_on.wait()
        under_way.append(under_way[-1] - 1)

    shared, callers = SharedCall(run), list[asyncio.Task[None]]()
    for _ in range(2):
        callers.append(asyncio.create_task(shared()))
        for _ in range(5):
            await asyncio.sleep(0)
    assert under_way == [0, 1]
    goes_on.set()
    await asyncio.gather(*callers)
    assert under_way == [0, 1, 0, 1, 0]


async def test_each_caller_gets_the_failure_and_the_next_one_runs_it_again() -> None:
    failures = [ZeroDivisionError()] * 2

    async def run() -> None:
        if failures:
            raise failures.pop()

    shared = SharedCall(run)
    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError] * 2
    with pytest.raises(ZeroDivisionError):
        await shared()
    await shared()
