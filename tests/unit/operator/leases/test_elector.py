"""An election against a Lease in memory: when the fence opens and closes, and what is written."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nodedevice_kube.api_errors import InvalidResponse, NotLeading, Unreachable
from nodedevice_kube.leases import Lease
from nodedevice_operator.kube.client import Client
from nodedevice_operator.leases.elector import LeaderLeases

from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.leases.elections import LeaseModel, Run, SlowLeases

pytestmark = virtual_time
AWAY = Unreachable("PUT", "leases", "away")


@pytest.fixture
def run() -> Run:
    return Run(LeaseModel())


def hold(run: Run, renewed: str = "r") -> None:
    """Another operator holds the Lease, and has just renewed it."""
    run.leases.store(Lease("other", renewed, "a", 4, 7))


def quiet_when(run: Run, is_quiet: bool) -> Callable[[], Awaitable[bool]]:
    async def until_quiet() -> bool:
        assert not run.fence.is_open
        return is_quiet

    return until_quiet


async def test_a_free_lease_is_taken_at_once_and_kept(run: Run) -> None:
    assert not run.fence.is_open
    async with run.working():
        assert (run.fence.is_open, run.leases.lease.holder) == (True, "me")
        first = run.leases.lease.renewed
        assert await run.closed(20) == 0
        assert run.leases.lease.renewed != first
        assert (run.leases.lease.transitions, run.led) == (0, [True])


async def test_a_holder_is_followed_once_it_renews_no_more_within_its_time_and_an_eighth(run: Run) -> None:
    hold(run)
    async with run.working():
        for number in range(10):
            await asyncio.sleep(1)
            hold(run, f"r{number}")
            last = run.clock()
        assert await run.closed(3.9) == 3.9
        assert run.leases.lease.holder == "other"
        await asyncio.sleep(1.1)
        assert (run.fence.is_open, run.leases.lease.transitions) == (True, 8)
        # it may have worked until its next renewal was due
        assert last + 1 <= run.without_leader_since[0] <= last + 1.5


async def test_a_released_lease_is_taken_at_the_next_poll(run: Run) -> None:
    hold(run)
    async with run.working():
        await asyncio.sleep(1)
        released_at = run.clock()
        run.leases.store(run.leases.lease._replace(holder="", renewed="left"))
        await asyncio.sleep(0.5)
        assert run.fence.is_open
        assert released_at <= run.without_leader_since[0] <= released_at + 0.5


async def test_the_fence_closes_by_itself_when_nothing_can_be_renewed(run: Run) -> None:
    async with run.working():
        led_at = run.clock()
        run.leases.failures = [AWAY] * 100
        assert await run.closed(2.9) == 0
        await asyncio.sleep(0.2)
        assert not run.fence.is_open
        with pytest.raises(NotLeading):
            run.fence.check("PATCH", "nodes/status")
        run.leases.failures = []
        await asyncio.sleep(0.5)
        assert run.fence.is_open
        # no other operator held it in between, and nothing was written since the fence closed
        assert run.led == [True, False]
        assert run.without_leader_since[1] == pytest.approx(led_at + 3, abs=0.02)


async def test_a_leader_stopped_for_long_follows_the_other_and_leads_again_when_it_is_gone(run: Run) -> None:
    async with run.working():
        run.stopped_seconds = 60
        assert not run.fence.is_open
        hold(run)
        assert await run.closed(2) == 2
        assert run.leases.lease.holder == "other"
        await asyncio.sleep(5)
        assert run.led == [True, True]


async def test_the_loser_of_a_race_reads_the_winner_at_once(run: Run) -> None:
    async with run.working():
        hold(run)
        # its next renewal, with the version that it knows
        await asyncio.sleep(1)
        assert run.fence.is_open
        await asyncio.sleep(0.1)
        assert not run.fence.is_open


async def test_a_lost_answer_is_no_loss(run: Run) -> None:
    run.leases.is_answer_lost = True
    async with run.working():
        assert not run.fence.is_open
        run.leases.is_answer_lost = False
        await asyncio.sleep(1)
        assert (run.fence.is_open, run.leases.lease.holder) == (True, "me")


@pytest.mark.parametrize(
    ("holder", "is_quiet", "holder_after"),
    [
        pytest.param("", True, "", id="releases it once no write is out"),
        pytest.param("", False, "me", id="lets it run out while a write is out"),
        pytest.param("other", True, "other", id="leaves that of another"),
    ],
)
async def test_the_end(run: Run, holder: str, is_quiet: bool, holder_after: str) -> None:
    if holder:
        hold(run)
    working = asyncio.create_task(run.election.work())
    await asyncio.sleep(0.1)
    await run.election.end(quiet_when(run, is_quiet))
    assert run.leases.lease.holder == holder_after
    async with asyncio.timeout(60):
        await working
    assert not run.fence.is_open


@pytest.mark.parametrize("ends", [True, False], ids=["end", "stand aside"])
async def test_a_claim_that_is_answered_after_the_end_began_opens_nothing(ends: bool) -> None:
    run = Run(SlowLeases((0.5,)))
    async with run.working():
        await asyncio.sleep(0.7)
        leave = run.election.end if ends else run.election.stand_aside
        await leave(quiet_when(run, True))
        assert run.leases.lease.holder == ""
        assert await run.closed(10) == 10
    assert run.led == []


async def test_an_operator_that_stands_aside_releases_the_lease_and_takes_it_again_when_it_may(run: Run) -> None:
    async with run.working():
        await run.election.stand_aside(quiet_when(run, True))
        assert run.leases.lease.holder == ""
        assert await run.closed(60) == 60
        hold(run)
        run.election.take_part()
        # the other was quicker
        assert await run.closed(3.9) == 3.9
        await asyncio.sleep(1)
        assert (run.fence.is_open, run.led) == (True, [True, True])


@pytest.mark.parametrize("verb", ["GET", "PUT"])
async def test_a_request_has_the_timeout_of_its_caller_and_names_itself_in_errors(verb: str) -> None:
    waited: list[float] = []

    class Odd(Client):
        def __init__(self) -> None:
            """Of no server."""

        async def request(self, *_: Any, seconds: float | None = None, **__: Any) -> bytes:
            assert seconds is not None
            waited.append(seconds)
            return b"[]"

    leases = LeaderLeases(Odd(), "ours")
    with pytest.raises(InvalidResponse, match=f"{verb} leases: "):
        await (leases.read(3.0) if verb == "GET" else leases.write(Lease(), 3.0))
    assert waited == [3.0]


async def test_lead_loss_and_another_leader_are_logged_once_each(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with run.working():
        await asyncio.sleep(3)
        run.leases.failures = [AWAY] * 100
        await asyncio.sleep(6)
        run.leases.failures = []
        hold(run)
        await asyncio.sleep(3)
    assert log_lines(caplog.records) == [
        ("INFO", "leading", {"identity": "me", "transitions": 0}),
        ("WARNING", "Lease was not renewed in time; writes are blocked until it is", {}),
        ("INFO", "standing by", {"leader": "other"}),
    ]
