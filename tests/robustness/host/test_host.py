"""One device, one pod: plugs, boots, edits, kills and pods at random on a made-up host, and a referee that knows each stick.

HOST_STEPS: how many. HOST_SEED: of the first run; each run of 400 steps has a host of its own, and the seed after the one before.

Each run has a file that cannot be read, and more come and go. Breaches are a device in two pods, a lost one, a wrong one, and one
that waits without need. `waits.py` lists the waits that nobody could avoid.
"""

import os
from collections import Counter
from collections.abc import Callable

from tests import examples
from tests.robustness.host.referee.waits import Wait
from tests.robustness.host.shrink import report
from tests.robustness.host.steps import STEPS_A_RUN, draw_steps, run

STEPS = int(os.environ.get("HOST_STEPS", "20000"))
SEED = examples.seed("HOST_SEED")


def test_no_device_is_ever_in_two_pods(progress: Callable[[str], None]) -> None:
    progress(f"\n{STEPS} steps on made-up hosts, HOST_SEED={SEED}")
    checks: Counter[str] = Counter()
    waits: Counter[Wait] = Counter()
    for seed in range(SEED, SEED + STEPS // STEPS_A_RUN):
        steps = draw_steps(seed, STEPS_A_RUN)
        result = run(seed, steps)
        checks += result.checks
        waits += result.waits
        assert result.breach is None, report(seed, steps, result)
    progress(", ".join(f"{count} {kind}" for kind, count in sorted(checks.items())))
    progress("waits: " + ", ".join(f"{count} {wait.name}" for wait, count in waits.most_common()))
    assert min(checks[kind] for kind in ("grants", "held", "held back", "offers", "refusals", "unconfirmed")) > 0, (
        "there was nothing to compare"
    )
