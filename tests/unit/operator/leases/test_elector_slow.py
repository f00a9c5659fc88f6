"""An election while the API server answers late, or not at all: how long the fence is closed."""

import asyncio
import itertools

import pytest
from nodedevice_kube.api_errors import ApiError, Conflict, NoAnswer
from nodedevice_kube.leases import Lease

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.operator.leases.elections import LeaseModel, Run, SlowLeases

pytestmark = virtual_time


@pytest.mark.parametrize("applied_after", [0.1, 0.5, 1.0])
async def test_answers_of_one_to_three_seconds_cost_the_lead_once_at_most(applied_after: float) -> None:
    leases = SlowLeases((0.01,), applied_after)
    run, standby = Run(leases), Run(leases, "standby")
    async with running(run.election.work(), standby.election.work()):
        await asyncio.sleep(10)
        leader = run if run.fence.is_open else standby
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


@pytest.mark.parametrize("applied_after", [0.1, 1.0])
async def test_a_lost_try_is_followed_by_a_second_in_time(applied_after: float) -> None:
    leases = SlowLeases((0.01,), applied_after)
    run = Run(leases)
    async with running(run.election.work()):
        await asyncio.sleep(10)
        sent = leases.sent
        leases.turns = itertools.chain((1000.0,), itertools.cycle((0.01,)))
        assert await run.closed(20) == 0
        assert leases.sent > sent
        assert run.led == [True]


async def test_without_any_answer_no_try_is_left_behind() -> None:
    leases = SlowLeases((0.01,))
    run = Run(leases)
    async with running(run.election.work()):
        await asyncio.sleep(10)
        leases.turns = itertools.cycle((1000.0,))
        assert await run.closed(300) >= 295
        ours = [each for each in asyncio.all_tasks() if "Election" in repr(each.get_coro())]
        assert len(ours) <= 3, "itself, and two tries"
        leases.turns = itertools.cycle((0.01,))
        await asyncio.sleep(60)
        assert run.fence.is_open


class TwoTries(LeaseModel):
    """The next writes each end so many seconds after they were sent, as set: with an error, or done."""

    def __init__(self, *ends: tuple[float, ApiError | None]) -> None:
        super().__init__()
        self.ends = list(ends)
        self.read_at: list[float] = []

    async def read(self, seconds: float | None = None) -> Lease:
        self.read_at.append(asyncio.get_running_loop().time())
        return await super().read(seconds)

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        after, error = self.ends.pop(0) if self.ends else (1000.0, None)
        await later(after)
        if error is not None:
            raise error
        return await super().write(lease)


CHANGED = Conflict("PUT", "leases", "the object has been modified", 409)
SILENT = NoAnswer("PUT", "leases", "no response", 4.0)


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        # the second is sent after a second
        pytest.param([(0.2, SILENT)], 0.2 + 0.5, id="the only one has no answer"),
        pytest.param([(1.5, SILENT), (0.2, CHANGED)], 1.5 + 0.05, id="the answer comes before the silence"),
        pytest.param([(1.2, SILENT), (0.9, CHANGED)], 1.9 + 0.05, id="the silence comes before the answer"),
        pytest.param([(1.5, CHANGED), (1.0, SILENT)], 2.0 + 0.05, id="the first is answered"),
        pytest.param([(1.5, SILENT), (1.0, SILENT)], 2.0 + 0.5, id="both have no answer"),
    ],
)
async def test_of_two_tries_the_answer_counts(ends: list[tuple[float, ApiError | None]], seconds: float) -> None:
    """After an answer the holder of the Lease is read at once; without any it is waited for."""
    leases = TwoTries(*ends)
    async with running(Run(leases).election.work()):
        await asyncio.sleep(3)
    assert leases.ends == []
    first, second = leases.read_at
    assert second - first == pytest.approx(seconds)


async def test_of_two_tries_the_first_that_is_done_counts_from_when_it_was_sent() -> None:
    leases = TwoTries((100.0, None), (0.5, None))
    run = Run(leases)
    async with running(run.election.work()):
        # sent after a second, for three
        assert await run.closed(3.9) == pytest.approx(1.4, abs=0.11)
        assert run.fence.is_open
        await later(0.2)
        assert not run.fence.is_open
        assert leases.lease.version == "1"


class AnswersLost(SlowLeases):
    """Stores a duration that is shorter than before, and never answers."""

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        is_shorter = lease.duration_seconds < self.lease.duration_seconds
        written = await super().write(lease, seconds)
        if is_shorter:
            self.turns = itertools.cycle((1000.0,))
            await later(1000.0)
        return written


async def test_a_shorter_lease_whose_answer_is_lost_is_over_before_another_may_take_it() -> None:
    leases = AnswersLost((0.01,))
    run = Run(leases)
    async with running(run.election.work()):
        await asyncio.sleep(10)
        leases.turns = itertools.cycle((2.9,))
        await asyncio.sleep(20)
        leases.turns = itertools.cycle((0.01,))
        while leases.lease.duration_seconds > 4:
            await later(0.1)
        shortened = run.clock()
        while run.fence.is_open:
            await later(0.1)
        assert run.clock() - shortened < 4
