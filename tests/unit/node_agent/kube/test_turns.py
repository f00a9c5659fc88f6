"""Who asks the API server next when hundreds want to at once."""

import asyncio

import pytest
from nodedevice_agent.kube.initial_lists import AT_ONCE, LIST, MOST_UNDER_WAY, PER_SECOND, WATCH, Turns

from tests.fakes.virtual_time import later, virtual_time

NAMES = 256


class Server:
    """Answers after so many seconds. asked: what, and when."""

    def __init__(self, seconds: float) -> None:
        self.turns = Turns(asyncio.get_running_loop().time)
        self.asked: list[tuple[str, float]] = []
        self.under_way = self.most_under_way = 0
        self._seconds = seconds
        self._began = asyncio.get_running_loop().time()

    async def ask(self, what: str, rank: int = LIST) -> None:
        turn = await self.turns.take(rank)
        try:
            self.asked.append((what, asyncio.get_running_loop().time() - self._began))
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            await later(self._seconds)
        finally:
            self.under_way -= 1
            turn.close()

    async def start(self, number: int) -> None:
        """As one of many objects that are known from before."""
        await self.ask(f"list {number}")
        await self.ask(f"watch {number}", WATCH)


@virtual_time
@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0])
async def test_few_at_a_time_and_no_faster_than_the_budget(seconds: float) -> None:
    server = Server(seconds)
    async with asyncio.TaskGroup() as tasks:
        for number in range(NAMES):
            tasks.create_task(server.start(number))
    assert len(server.asked) == 2 * NAMES
    assert server.most_under_way == MOST_UNDER_WAY
    for index, (_, when) in enumerate(server.asked):
        assert index <= AT_ONCE + PER_SECOND * when + 1e-6
    whats = [what.split()[0] for what, _ in server.asked]
    # what is known of the cordons comes before what changes later
    assert whats.index("watch") >= NAMES - MOST_UNDER_WAY


@virtual_time
@pytest.mark.parametrize("seconds", [0.01, 2.0])
async def test_one_that_comes_meanwhile_is_next(seconds: float) -> None:
    server = Server(seconds)
    async with asyncio.TaskGroup() as tasks:
        for number in range(NAMES):
            tasks.create_task(server.start(number))
        await asyncio.sleep(0.5)
        before = len(server.asked)
        await server.ask("new")
    assert "new" in [what for what, _ in server.asked[before : before + 2]]


@virtual_time
@pytest.mark.parametrize("is_given", [False, True], ids=["while it waits", "at the moment in which it is its turn"])
async def test_one_that_is_cancelled_keeps_no_turn(is_given: bool) -> None:
    turns = Turns(asyncio.get_running_loop().time)
    for _ in range(NAMES):
        taken = [await turns.take(LIST) for _ in range(MOST_UNDER_WAY)]
        waiting = asyncio.create_task(turns.take(LIST))
        await asyncio.sleep(10)
        if is_given:
            taken.pop().close()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for turn in taken:
            turn.close()
            # a second time does nothing
            turn.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*(turns.take(LIST) for _ in range(MOST_UNDER_WAY)))
