"""The schedule itself: the same from the same seed, and nothing left out of a short run."""

from itertools import islice

import pytest

from tests.robustness.chaos import schedule

NODES = ("node-a", "node-b")


def test_equal_seeds_are_equal_rounds() -> None:
    first, again, other = (list(islice(schedule.rounds(seed, NODES), 20)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("seed", range(5))
def test_a_short_run_sees_everything(seed: int) -> None:
    first = list(islice(schedule.rounds(seed, NODES), 4))
    lasting = [step.what for chosen in first for step in chosen.lasting]
    assert sorted(lasting) == sorted({schedule.OPERATOR, schedule.AGENT, schedule.API_SERVER, schedule.ETCD})
    for chosen in first:
        others = {step.what for step in chosen.momentary}
        assert others == {schedule.ZEROED, schedule.CONFLICT, schedule.CUT, schedule.HEALTH, schedule.DELETED}
