"""Who may write the Lease, when, and what is written: for one candidate, and for several that race."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from nodedevice_operator.leases.leader_election import Candidate, LeaderLease, Pace, Timing

TIMING = Timing(4)
OTHERS = LeaderLease("other", "r1", "a1", 4, 3, "10")


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


def test_all_times_are_fractions_of_one() -> None:
    made = Timing(40)
    assert (made.deadline_seconds, made.renew_seconds, made.second_try_seconds, made.retry_seconds) == (30, 10, 10, 5)


def candidate(name: str = "me") -> Candidate:
    return Candidate(name, TIMING)


@pytest.mark.parametrize(
    "lease", [LeaderLease(), LeaderLease("", "r", "a", 4, 1, "7"), LeaderLease("me", "r", "a", 4, 1, "7")]
)
def test_what_is_nobodys_or_ours_is_taken_at_once(lease: LeaderLease) -> None:
    assert candidate().saw(lease, 100).wait_seconds(100) == 0


def test_a_holder_is_waited_for_since_its_last_renewal_was_seen() -> None:
    waiting = candidate().saw(OTHERS, 100)
    assert waiting.wait_seconds(100) == 4
    waiting = waiting.saw(OTHERS, 103)
    assert waiting.wait_seconds(103) == 1
    waiting = waiting.saw(replace(OTHERS, renewed="r2", version="11"), 103.5)
    assert waiting.wait_seconds(104) == 3.5
    assert waiting.wait_seconds(107.5) == 0


def test_its_clock_does_not_matter() -> None:
    assert candidate().saw(replace(OTHERS, renewed="1970-01-01T00:00:00Z"), 100).wait_seconds(101) == 3


@pytest.mark.parametrize(("stated", "waited"), [(15, 15), (0, 4), (10**9, 60)])
def test_how_long_it_lasts_is_the_holders_word_within_reason(stated: int, waited: float) -> None:
    assert candidate().saw(replace(OTHERS, duration_seconds=stated), 0).wait_seconds(0) == waited


def test_a_deleted_lease_frees_nobody_of_its_holder() -> None:
    waiting = candidate().saw(OTHERS, 100).saw(LeaderLease(), 101)
    assert waiting.wait_seconds(101) == 3
    # it is created then, not replaced
    assert waiting.claim("now").version == ""


def test_taking_it_counts_and_keeping_it_does_not() -> None:
    taken = candidate().saw(OTHERS, 0).claim("now")
    assert taken == LeaderLease("me", "now", "now", 4, 4, "10")
    kept = candidate().saw(replace(taken, version="11"), 0).claim("later")
    assert (kept.renewed, kept.acquired, kept.transitions, kept.version) == ("later", "now", 4, "11")
    assert candidate().saw(LeaderLease(), 0).claim("now").transitions == 0


def test_a_release_leaves_it_to_anybody() -> None:
    held = candidate().saw(LeaderLease("me", "r", "a", 4, 2, "5"), 0)
    left = held.release("now")
    assert (left.holder, left.transitions, left.version) == ("", 2, "5")
    assert candidate("other").saw(left, 0).wait_seconds(0) == 0


def test_writing_ends_before_anybody_else_begins() -> None:
    for seconds in range(2, 61):
        timing = Timing(seconds)
        assert timing.renew_seconds * 2 < timing.deadline_seconds < timing.lease_seconds
        assert timing.retry_seconds < timing.lease_seconds - timing.deadline_seconds


@dataclass
class _Process:
    """A candidate and its gate. `version` is what it believes the Lease to be at; None: it reads first."""

    candidate: Candidate
    deadline: float = 0.0
    is_current: bool = False
    is_stopped: bool = False


@dataclass
class _Store:
    lease: LeaderLease = field(default_factory=LeaderLease)
    version: int = 0

    def put(self, lease: LeaderLease) -> LeaderLease | None:
        if lease.version != self.lease.version:
            return None
        self.version += 1
        self.lease = replace(lease, version=str(self.version))
        return self.lease


class Race(RuleBasedStateMachine):
    """Three candidates that read, write, stop and go on in any order; time passes; people delete the Lease."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.texts = 0
        self.store = _Store()
        self.processes = [_Process(Candidate(f"c{number}", TIMING)) for number in range(3)]

    def _text(self) -> str:
        self.texts += 1
        return str(self.texts)

    @rule(seconds=st.floats(0.01, 3.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=st.integers(0, 2), is_answer_lost=st.booleans())
    def a_round(self, number: int, is_answer_lost: bool) -> None:
        process = self.processes[number]
        if not process.is_current:
            process.candidate = process.candidate.saw(self.store.lease, self.now)
        if process.candidate.wait_seconds(self.now) > 0:
            process.is_current = False
            process.deadline = 0.0
            return
        written = self.store.put(process.candidate.claim(self._text()))
        process.is_current = written is not None and not is_answer_lost
        if written is not None and not is_answer_lost:
            process.candidate = process.candidate.saw(written, self.now)
            process.deadline = self.now + TIMING.deadline_seconds

    @rule(number=st.integers(0, 2))
    def a_clean_end(self, number: int) -> None:
        if self.store.version and not self.store.lease.version:
            return  # who starts just after the Lease was deleted knows of no holder: then only the Nodes' versions protect
        process = self.processes[number]
        process.deadline = 0.0
        if process.candidate.holds:
            self.store.put(process.candidate.release(self._text()))
        self.processes[number] = _Process(Candidate(f"{process.candidate.identity}'", TIMING))

    @rule()
    def it_is_deleted(self) -> None:
        # who never saw its last holder could take it at once; all have read it, as they do once or twice a second
        for process in self.processes:
            process.candidate = process.candidate.saw(self.store.lease, self.now)
        self.store.lease = LeaderLease()

    @invariant()
    def no_two_may_write(self) -> None:
        assert sum(self.now < process.deadline for process in self.processes) <= 1


TestRace = Race.TestCase
