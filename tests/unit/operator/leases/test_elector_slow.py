"""An election while the API server answers late, or not at all: how long the fence is closed."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from nodedevice_kube.api_errors import ApiError, Conflict, NoAnswer
from nodedevice_kube.leases import Lease
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import Election, identity
from nodedevice_operator.leases.leader_election import Timing

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.operator.leases.elections import LeaseModel


class SlowLeases(LeaseModel):
    """Answers after a time of the loop's: those of `seconds`, in turn. applied_after: when within it a write is done."""

    def __init__(self, seconds: tuple[float, ...], applied_after: float = 1.0) -> None:
        super().__init__()
        self.turns: Iterator[float] = itertools.cycle(seconds)
        self.applied_after = applied_after
        self.sent = 0

    async def read(self, seconds: float | None = None) -> Lease:
        await self._answer(next(self.turns), seconds)
        return self.lease

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        self.sent += 1
        takes = next(self.turns)
        before = min(takes * self.applied_after, takes)
        await self._answer(before, seconds)
        written = await super().write(lease)
        await self._answer(takes - before, None if seconds is None else seconds - before)
        return written

    async def _answer(self, takes: float, seconds: float | None) -> None:
        assert seconds is not None, "it would be waited for without end"
        await later(min(takes, seconds))
        if takes > seconds:
            raise NoAnswer("PUT", "leases", "no response", seconds)


class Lapses:
    """An election that works by the loop's clock, and for how long its fence was closed after it led first."""

    def __init__(self, leases: LeaseModel) -> None:
        clock = asyncio.get_running_loop().time
        self.fence = WriteFence(clock)
        self.led: list[bool] = []
        self.election = Election(
            leases, self.fence, Timing(4), identity(), lambda another, _: self.led.append(another), clock
        )

    async def closed(self, seconds: float) -> float:
        """For how many of so many seconds the fence is closed from now on, to a tenth."""
        closed = 0
        for _ in range(round(seconds * 10)):
            await later(0.1)
            closed += not self.fence.is_open
        return closed / 10


@virtual_time
@pytest.mark.parametrize("applied_after", [0.1, 0.5, 1.0])
async def test_answers_of_one_to_three_seconds_cost_the_lead_once_at_most(applied_after: float) -> None:
    leases = SlowLeases((0.01,), applied_after)
    lapses, standby = Lapses(leases), Lapses(leases)
    async with running(lapses.election.work(), standby.election.work()):
        await asyncio.sleep(10)
        leader = lapses if lapses.fence.is_open else standby
        leases.turns = itertools.cycle((1.0, 2.9, 2.0, 3.0, 1.5, 2.4))
        assert await leader.closed(30) <= 5
        assert await leader.closed(270) == 0
        # five times what an answer takes, which others read in it
        assert leases.lease.duration_seconds == 15
        assert leader.led.count(True) == 1, "nobody else ever wrote"
        # and when it is quick again, a crash is noticed as soon as before
        leases.turns = itertools.cycle((0.01,))
        await asyncio.sleep(120)
        assert leases.lease.duration_seconds == 4


@virtual_time
@pytest.mark.parametrize("applied_after", [0.1, 1.0])
async def test_a_try_that_is_lost_is_followed_by_a_second_in_time(applied_after: float) -> None:
    leases = SlowLeases((0.01,), applied_after)
    lapses = Lapses(leases)
    async with running(lapses.election.work()):
        await asyncio.sleep(10)
        sent = leases.sent
        leases.turns = itertools.chain((1000.0,), itertools.cycle((0.01,)))
        assert await lapses.closed(20) == 0
        assert leases.sent > sent
        assert lapses.led == [True]


@virtual_time
async def test_without_any_answer_no_try_is_left_behind() -> None:
    leases = SlowLeases((0.01,))
    lapses = Lapses(leases)
    async with running(lapses.election.work()):
        await asyncio.sleep(10)
        leases.turns = itertools.cycle((1000.0,))
        assert await lapses.closed(300) >= 295
        ours = [each for each in asyncio.all_tasks() if "Election" in repr(each.get_coro())]
        assert len(ours) <= 3, "itself, and two tries"
        leases.turns = itertools.cycle((0.01,))
        await asyncio.sleep(60)
        assert lapses.fence.is_open


class TwoTries(LeaseModel):
    """Of the next writes each ends so many seconds after it was sent, as set: with an error, or done."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[float, ApiError | None]] = []

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        after, error = self.ends.pop(0)
        await later(after)
        if error is not None:
            raise error
        return await super().write(lease)


CHANGED = Conflict("PUT", "leases", "the object has been modified", 409)
SILENT = NoAnswer("PUT", "leases", "no response", 4.0)


@virtual_time
@pytest.mark.parametrize(
    ("ends", "pause"),
    [
        # the second is sent after a second
        pytest.param([(0.2, SILENT)], 0.5, id="the only one has no answer"),
        pytest.param([(1.5, SILENT), (0.2, CHANGED)], 0.05, id="the answer comes before the silence"),
        pytest.param([(1.2, SILENT), (0.9, CHANGED)], 0.05, id="the silence comes before the answer"),
        pytest.param([(1.5, CHANGED), (1.0, SILENT)], 0.05, id="the first is answered"),
        pytest.param([(1.5, SILENT), (1.0, SILENT)], 0.5, id="both have no answer"),
    ],
)
async def test_of_two_tries_the_answer_counts(ends: list[tuple[float, ApiError | None]], pause: float) -> None:
    """After an answer it is read at once who holds the Lease; without any it is waited for."""
    leases = TwoTries()
    leases.ends = ends
    assert await Lapses(leases).election._round() == pause
    assert leases.ends == []


@virtual_time
async def test_of_two_tries_the_first_that_is_done_counts_from_when_it_was_sent() -> None:
    leases = TwoTries()
    leases.ends = [(100.0, None), (0.5, None)]
    lapses, began = Lapses(leases), asyncio.get_running_loop().time()
    await lapses.election._round()
    # sent after a second, for three
    await later(began + 3.9 - asyncio.get_running_loop().time())
    assert lapses.fence.is_open
    await later(0.2)
    assert not lapses.fence.is_open
    assert leases.lease.version == "1"


class AnswersLost(SlowLeases):
    """Stores what is shorter than before, and never answers."""

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        is_shorter = lease.duration_seconds < self.lease.duration_seconds
        written = await super().write(lease, seconds)
        if is_shorter:
            self.turns = itertools.cycle((1000.0,))
            await later(1000.0)
        return written


@virtual_time
async def test_a_shorter_lease_whose_answer_is_lost_is_over_before_another_may_take_it() -> None:
    leases = AnswersLost((0.01,))
    lapses, clock = Lapses(leases), asyncio.get_running_loop().time
    async with running(lapses.election.work()):
        await asyncio.sleep(10)
        leases.turns = itertools.cycle((2.9,))
        await asyncio.sleep(20)
        leases.turns = itertools.cycle((0.01,))
        while leases.lease.duration_seconds > 4:
            await later(0.1)
        shortened = clock()
        while lapses.fence.is_open:
            await later(0.1)
        assert clock() - shortened < 4
