"""Chaos on the real thing: everything is killed, cut and contradicted, and whenever it is calm again capacity is right.

CHAOS_SECONDS: how long (default 30). CHAOS_SEED: which schedule; without it a new one, which is printed.
"""

import os
import random
import tempfile
import time
from pathlib import Path

from tests.robustness.chaos.schedule import rounds
from tests.robustness.chaos.siege import Siege

SECONDS = float(os.environ.get("CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


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
        assert siege.counts.total() > 0
