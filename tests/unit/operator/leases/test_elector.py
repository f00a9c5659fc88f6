"""The rounds of an election against a Lease in memory: when the fence opens and closes, and what is written."""

import asyncio
import os
import re
import socket
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from nodedevice_kube.api_errors import InvalidResponse, NotLeading, Unreachable
from nodedevice_kube.leases import Lease
from nodedevice_operator.kube.client import Client
from nodedevice_operator.leases.elector import LeaderLeases, identity

from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.leases.elections import LeaseModel, Run, other


@pytest.fixture
def run() -> Run:
    return Run(LeaseModel())


async def test_a_free_lease_is_taken_at_once_and_kept(run: Run) -> None:
    assert not run.fence.is_open
    await run.election._round()
    assert run.fence.is_open
    assert run.leases.lease.holder == "me"
    assert run.led == [True]
    first = run.leases.lease.renewed
    await run.rounds(20)
    assert run.fence.is_open
    assert run.leases.lease.renewed != first
    assert run.leases.lease.transitions == 0
    assert run.led == [True]


async def test_a_holder_that_renews_is_never_disturbed(run: Run) -> None:
    for number in range(10):
        other(run, f"r{number}")
        await run.rounds(1)
    assert run.leases.lease.holder == "other"
    assert not run.fence.is_open


async def test_one_that_renews_no_more_is_followed_within_its_time_and_an_eighth(run: Run) -> None:
    other(run)
    await run.rounds(3.9)
    assert not run.fence.is_open
    await run.rounds(0.6)
    assert run.fence.is_open
    assert run.leases.lease.transitions == 8
    # it may have worked until its next renewal was due
    assert run.without_leader_since == [101]


async def test_one_that_cleared_it_is_followed_at_the_next_poll(run: Run) -> None:
    other(run)
    await run.rounds(1)
    run.leases.lease = replace(run.leases.lease, holder="", renewed="left", version="5000")
    run.leases._version = 5000
    await run.rounds(0.5)
    assert run.fence.is_open
    # seen at the next check
    assert 101 <= run.without_leader_since[0] <= 101.5


async def test_the_gate_closes_by_itself_when_nothing_can_be_renewed(run: Run) -> None:
    await run.election._round()
    run.leases.failures = [Unreachable("PUT", "leases", "away")] * 100
    await run.rounds(2.9)
    assert run.fence.is_open
    await run.rounds(0.2)
    assert not run.fence.is_open
    with pytest.raises(NotLeading):
        run.fence.check("PATCH", "nodes/status")
    run.leases.failures = []
    await run.rounds(0.5)
    assert run.fence.is_open
    # nobody else held it in between, and nothing was written since the fence closed
    assert run.led == [True, False]
    assert run.without_leader_since[1] == 103


async def test_a_renewal_counts_from_when_it_was_sent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    await run.election._round()
    slow = run.leases.write

    async def held_up(lease: Lease, seconds: float | None = None) -> Lease:
        run.now[0] += 2.5
        return await slow(lease)

    monkeypatch.setattr(run.leases, "write", held_up)
    run.now[0] += 1
    await run.election._round()
    run.now[0] += 0.4
    assert run.fence.is_open
    run.now[0] += 0.2
    assert not run.fence.is_open


async def test_a_leader_stopped_for_long_follows_the_other_and_leads_again_when_it_is_gone(run: Run) -> None:
    await run.election._round()
    run.now[0] += 60
    assert not run.fence.is_open
    other(run)
    # it is read, and not written at the version that is known
    assert await run.election._round() == run.election.timing.retry_seconds
    await run.rounds(1)
    assert not run.fence.is_open
    assert run.leases.lease.holder == "other"
    await run.rounds(5)
    assert run.led == [True, True]


async def test_whoever_lost_a_race_reads_at_once_who_won_it(run: Run) -> None:
    await run.election._round()
    other(run)
    assert await run.election._round() < 0.1
    assert await run.election._round() == run.election.timing.retry_seconds
    assert not run.fence.is_open


async def test_an_answer_that_is_lost_is_no_loss(run: Run) -> None:
    run.leases.is_answer_lost = True
    await run.election._round()
    assert not run.fence.is_open
    run.leases.is_answer_lost = False
    await run.rounds(1)
    assert run.fence.is_open
    assert run.leases.lease.holder == "me"


async def test_the_end_clears_the_holder_once_no_write_is_out(run: Run) -> None:
    await run.election._round()
    seen: list[bool] = []

    async def quiet() -> bool:
        seen.append(run.fence.is_open)
        return True

    await run.election.end(quiet)
    assert seen == [False]
    assert run.leases.lease.holder == ""
    assert not run.fence.is_open


async def test_the_end_leaves_the_lease_to_run_out_while_a_write_is_out(run: Run) -> None:
    await run.election._round()

    async def quiet() -> bool:
        return False

    await run.election.end(quiet)
    assert run.leases.lease.holder == "me"
    assert not run.fence.is_open


async def test_the_end_of_one_who_stands_by_changes_nothing(run: Run) -> None:
    other(run)
    await run.election._round()

    async def quiet() -> bool:
        return True

    await run.election.end(quiet)
    assert run.leases.lease.holder == "other"


async def test_work_ends_with_it(run: Run) -> None:
    working = asyncio.create_task(run.election.work())

    async def quiet() -> bool:
        return True

    await run.election.end(quiet)
    async with asyncio.timeout(60):
        await working
    assert not run.fence.is_open


async def test_a_claim_that_is_answered_after_the_end_began_opens_nothing(run: Run) -> None:
    run.election._has_ended = True
    assert await run.election._round() == 0
    assert (run.fence.is_open, run.led) == (False, [])


async def test_a_request_is_waited_for_as_long_as_its_caller_says() -> None:
    waited: list[tuple[str, float]] = []

    class Noting(Client):
        def __init__(self) -> None:
            """Of no server."""

        async def request(self, verb: str, *given: Any, **more: Any) -> bytes:
            waited.append((verb, more["seconds"]))
            return b'{"metadata": {}, "spec": {}}'

    leases = LeaderLeases(Noting(), "ours")
    await leases.read(3.0)
    await leases.write(Lease(), 4.0)
    assert waited == [("GET", 3.0), ("PUT", 4.0)]


async def test_the_lead_its_loss_and_another_one_are_logged_once_each(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await run.rounds(3)
    run.leases.failures = [Unreachable("PUT", "leases", "away")] * 100
    await run.rounds(6)
    run.leases.failures = []
    other(run)
    await run.rounds(3)
    assert log_lines(caplog.records) == [
        ("INFO", "leading", {"identity": "me", "transitions": 0}),
        ("WARNING", "Lease was not renewed in time; writes are blocked until it is", {}),
        ("INFO", "standing by", {"leader": "other"}),
    ]


@pytest.mark.parametrize("verb", ["GET", "PUT"])
async def test_an_answer_that_is_no_lease_names_the_request(verb: str) -> None:
    class Odd(Client):
        def __init__(self) -> None:
            """Of no server."""

        async def request(self, *_: Any, **__: Any) -> bytes:
            return b"[]"

    leases = LeaderLeases(Odd(), "ours")
    with pytest.raises(InvalidResponse, match=f"{verb} leases: "):
        await (leases.read() if verb == "GET" else leases.write(Lease()))


def test_two_processes_are_never_the_same_candidate() -> None:
    assert identity() != identity()
    assert re.fullmatch(rf"{socket.gethostname()}_{os.getpid()}_[0-9a-f]{{8}}", identity())


async def quiet() -> bool:
    return True


@virtual_time
async def test_whoever_stands_aside_releases_the_lease_and_takes_it_again_when_it_may(run: Run) -> None:
    await run.election._round()
    await run.election.stand_aside(quiet)
    assert not run.fence.is_open
    assert run.leases.lease.holder == ""
    work = asyncio.create_task(run.election.work())
    await asyncio.sleep(60)
    assert not run.fence.is_open
    other(run)
    run.election.take_part()
    await asyncio.sleep(60)
    # another was quicker
    assert not run.fence.is_open
    work.cancel()
    run.leases.lease = replace(run.leases.lease, holder="")
    await run.election._round()
    assert run.fence.is_open
    assert run.led == [True, True]


async def test_a_claim_that_was_sent_before_standing_aside_opens_nothing(run: Run) -> None:
    run.election._may_lead.clear()
    await run.election._round()
    assert not run.fence.is_open
    await run.election.stand_aside(quiet)
    assert run.leases.lease.holder == ""


def test_a_machine_whose_name_is_no_text_can_be_written_into_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: os.fsdecode(b"node-\xff"))
    assert msgspec.json.decode(msgspec.json.encode(identity())).startswith("node-?_")
