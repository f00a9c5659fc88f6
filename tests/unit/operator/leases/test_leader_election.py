"""Who may write the Lease, when, and what is written; the name of a candidate."""

import os
import re
import socket

import msgspec
import pytest
from nodedevice_kube.leases import Lease
from nodedevice_operator.leases.elector import identity
from nodedevice_operator.leases.leader_election import Candidate, Pace, Timing

TIMING = Timing(4)
OTHERS = Lease("other", "r1", "a1", 4, 3, "10")


@pytest.mark.parametrize(
    ("answers", "seconds"), [((), 4), ((0.8,), 4), ((0.81,), 5), ((0.1, 2.0, 0.1), 10), ((100.0,), 20)]
)
def test_it_lasts_five_times_the_slowest_answer(answers: tuple[float, ...], seconds: int) -> None:
    pace = Pace(TIMING)
    for each in answers:
        pace = pace.answered(each)
    assert pace.timing == Timing(seconds)
    for _ in range(16):
        pace = pace.answered(0.1)
    assert pace.timing == TIMING, "of the last answers alone"


def candidate(name: str = "me") -> Candidate:
    return Candidate(name, TIMING)


@pytest.mark.parametrize(("stated", "waited"), [(15, 15), (0, 4), (10**9, 60)])
def test_how_long_it_lasts_is_the_holders_word_within_reason(stated: int, waited: float) -> None:
    assert candidate().saw(OTHERS._replace(duration_seconds=stated), 0).wait_seconds(0) == waited


def test_whoever_held_a_deleted_lease_may_write_as_long_as_any_setting_allows() -> None:
    """Another may have taken it since it was read last."""
    waiting = candidate().saw(OTHERS, 100).saw(Lease(), 101)
    assert waiting.wait_seconds(101) == 60
    assert waiting.saw(Lease(), 150).wait_seconds(150) == 11
    # it is created then, not replaced
    assert waiting.claim("now").version == ""


def test_a_holder_creates_a_deleted_lease_at_once_only_while_it_may_write() -> None:
    stored = Lease("me", "r", "a", 4, 2, "5")
    holder = candidate().saw(stored, 100).claimed(stored, 100, 100)
    assert holder.saw(Lease(), 102.9).wait_seconds(102.9) == 0
    assert holder.saw(Lease(), 103).wait_seconds(103) == 60


def test_two_processes_are_never_the_same_candidate() -> None:
    assert identity() != identity()
    assert re.fullmatch(rf"{socket.gethostname()}_{os.getpid()}_[0-9a-f]{{8}}", identity())


def test_a_hostname_that_is_not_utf8_can_be_written_into_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: os.fsdecode(b"node-\xff"))
    assert msgspec.json.decode(msgspec.json.encode(identity())).startswith("node-?_")
