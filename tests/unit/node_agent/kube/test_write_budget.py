"""How often the NodeDevices of an agent are written, and in which order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.kube.write_budget import (
    AGENT_WRITES_AT_ONCE,
    AGENT_WRITES_PER_SECOND,
    OBJECT_WRITES_AT_ONCE,
    OBJECT_WRITES_PER_SECOND,
    WriteBudget,
    WriteShare,
)

GAIN, LOSS = False, True
# a hair for rounding: tokens are summed up as floats
HAIR = 1e-6


class Objects:
    """So many objects of one agent, and a clock."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.budget = WriteBudget(self.now)
        # when, and which object
        self.log: list[tuple[float, int]] = []
        self.shares = [WriteShare(self.now, lambda: None, number) for number in range(count)]

    def turns(self, seconds: float, *wanted: bool | None) -> list[int]:
        """The objects that may write within that time; wanted: what each of them always has to write, if anything."""
        until, turns = self.now + seconds, []
        while True:
            for share, is_loss in zip(self.shares, wanted, strict=True):
                share.is_loss = bool(is_loss)
            waiting = [share for share, is_loss in zip(self.shares, wanted, strict=True) if is_loss is not None]
            next_one = self.budget.take_turn(waiting, self.now)
            if next_one is not None:
                turns.append(self.shares.index(next_one))
                self.log.append((self.now, turns[-1]))
                continue
            self.now += max(self.budget.wait_seconds(waiting, self.now), HAIR) if waiting else seconds
            if self.now >= until:
                self.now = until
                return turns


@pytest.mark.parametrize(
    ("is_loss", "at_once", "in_ten_seconds"),
    [
        pytest.param(LOSS, OBJECT_WRITES_AT_ONCE, 70, id="losses"),
        # the last one is kept for a loss
        pytest.param(GAIN, OBJECT_WRITES_AT_ONCE - 1, 69, id="gains"),
    ],
)
def test_one_object_has_twenty_writes_at_once_and_five_a_second(
    is_loss: bool, at_once: int, in_ten_seconds: int
) -> None:
    objects = Objects(1)
    assert len(objects.turns(0.1, is_loss)) == at_once
    assert len(objects.turns(9.95, is_loss)) == pytest.approx(in_ten_seconds - at_once, abs=1)


def test_a_loss_does_not_wait_for_the_gains_before_it() -> None:
    objects = Objects(1)
    objects.turns(60, GAIN)
    assert objects.turns(0.0, LOSS) == [0]


def test_an_agent_has_forty_a_second_shared_fairly() -> None:
    objects = Objects(100)
    objects.turns(10, *[GAIN] * 100)
    turns = Counter(objects.turns(10, *[GAIN] * 100))
    assert sum(turns.values()) == pytest.approx(10 * AGENT_WRITES_PER_SECOND, abs=2)
    assert set(turns.values()) <= {3, 4, 5}


def test_an_object_that_writes_rarely_goes_before_those_that_write_without_end() -> None:
    objects = Objects(51)
    objects.turns(10, *[GAIN] * 50, None)
    assert 50 in objects.turns(1 / AGENT_WRITES_PER_SECOND + HAIR, *[GAIN] * 50, GAIN)


def test_losses_go_first() -> None:
    objects = Objects(60)
    objects.turns(10, *[GAIN] * 60)
    turns = objects.turns(0.2, *[GAIN] * 54, *[LOSS] * 6)
    assert [number >= 54 for number in turns].count(True) == 6
    assert turns.index(max(turns)) <= 8


def test_losses_without_end_hold_up_nobodys_gains() -> None:
    objects = Objects(30)
    objects.turns(10, *[LOSS] * 29, None)
    assert 29 in objects.turns(0.2, *[LOSS] * 29, GAIN)


def test_a_plugin_that_serves_goes_before_hundreds_that_end_at_once_and_those_have_their_turns() -> None:
    objects = Objects(256)
    objects.turns(5, *[None] * 255, GAIN)
    for share in objects.shares[:255]:
        share.is_bulk = True
    objects.turns(1, *[LOSS] * 255, None)
    # one turn in four is fair to the others
    assert 255 in objects.turns(2 / AGENT_WRITES_PER_SECOND + HAIR, *[LOSS] * 255, GAIN)
    turns = objects.turns(255 / AGENT_WRITES_PER_SECOND, *[LOSS] * 255, LOSS)
    assert turns.count(255) >= OBJECT_WRITES_PER_SECOND * 255 / AGENT_WRITES_PER_SECOND - 1
    assert len({*turns}) > 200


def test_of_those_that_have_never_written_the_last_one_is_next_and_the_first_ones_have_their_turns() -> None:
    objects = Objects(256)
    for share in objects.shares:
        share.is_bulk = True
    some = objects.turns(1.0, *[GAIN] * 255, None)
    assert 255 in objects.turns(2 / AGENT_WRITES_PER_SECOND + HAIR, *[GAIN] * 255, GAIN)
    assert {0, 1, 2} < {*some}
    turns = objects.turns(2 * 255 / AGENT_WRITES_PER_SECOND, *[GAIN] * 256)
    assert {*some, *turns, 255} == {*range(256)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.2, 3.0]), st.lists(st.sampled_from([None, GAIN, LOSS]), min_size=6, max_size=6)
    ),
    max_size=30,
)


@given(STEPS)
def test_no_more_than_the_budget_and_everybody_gets_a_turn(steps: list[tuple[float, list[bool | None]]]) -> None:
    objects = Objects(6)
    for seconds, wanted in steps:
        objects.turns(seconds, *wanted)
    for owners, at_once, per_second in (
        *(({number}, OBJECT_WRITES_AT_ONCE, OBJECT_WRITES_PER_SECOND) for number in range(6)),
        (set(range(6)), AGENT_WRITES_AT_ONCE, AGENT_WRITES_PER_SECOND),
    ):
        times = [when for when, number in objects.log if number in owners]
        assert all(count <= at_once + when * per_second + HAIR for count, when in enumerate(times, 1))
    assert set(objects.turns(1.0, *[GAIN] * 6)) == set(range(6))
