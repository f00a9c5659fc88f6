"""Chaos on the real thing: everything is killed, cut and contradicted, and whenever it is calm again capacity is right.

The schedule is the same from the same seed, and leaves nothing out of a short run.
CHAOS_SECONDS: how long (default 30). CHAOS_SEED: which schedule; without it a new one, which is printed.
"""

import os
import tempfile
import time
from itertools import islice
from pathlib import Path

import pytest

from tests.examples import seed
from tests.robustness.chaos import schedule
from tests.robustness.chaos.schedule import rounds
from tests.robustness.chaos.siege import Siege

SECONDS = float(os.environ.get("CHAOS_SECONDS", "30"))
SEED = seed("CHAOS_SEED")


def test_capacity_is_right_whenever_it_is_calm() -> None:
    print(f"\nchaos: seed {SEED}, {SECONDS:.0f} s")
    with tempfile.TemporaryDirectory(prefix="nd-chaos-") as folder, Siege.start(Path(folder)) as siege:
        began = time.monotonic()
        for number, chosen in enumerate(rounds(SEED, siege.nodes)):
            siege.play(chosen)
            siege.calm_down(f"round {number} of seed {SEED}: {chosen}")
            if time.monotonic() - began > SECONDS:
                break
        report = siege.report()
        print(report)
        assert not siege.witness.violations, report
        assert siege.most_requests_per_second() <= 5, report
        assert siege.counts.total() > 0


NODES = ("node-a", "node-b")


@pytest.mark.parametrize("seed", range(5))
def test_a_short_run_sees_everything_and_the_same_with_the_same_seed(seed: int) -> None:
    first, again = (list(islice(rounds(seed, NODES), 4)) for _ in range(2))
    assert first == again
    lasting = [step.what for chosen in first for step in chosen.lasting]
    assert sorted(lasting) == sorted((*schedule.PROCESSES, *schedule.PROXIES))
    for chosen in first:
        others = {step.what for step in chosen.momentary}
        assert others == {schedule.ZEROED, schedule.CONFLICT, schedule.CUT, schedule.HEALTH, schedule.DELETED}
