"""One device, one pod: plugs, boots, edits, kills and pods at random on a made-up host, and a referee that knows each stick.

HOST_STEPS: how many. HOST_SEED: of the first run; each run of 400 steps has a host of its own, and the seed after the one before.

Breaches of safety count: a device in two pods, a lost one, an answer for another's. That nothing which is free is held back or
refused counts with the fixed seeds of the gate: with random ones there is some sequence in which nobody could do better than wait.
"""

import os
import random
from collections import Counter
from collections.abc import Callable

from tests.robustness.host.shrink import report
from tests.robustness.host.steps import STEPS_A_RUN, draw_steps, run

_AVAILABILITY = frozenset({"held back", "refused", "hangs"})
STEPS = int(os.environ.get("HOST_STEPS", "20000"))
SEED = int(os.environ.get("HOST_SEED") or random.SystemRandom().randrange(2**31))


def test_no_device_is_ever_in_two_pods(progress: Callable[[str], None]) -> None:
    progress(f"\n{STEPS} steps on made-up hosts, HOST_SEED={SEED}")
    checks: Counter[str] = Counter()
    for seed in range(SEED, SEED + STEPS // STEPS_A_RUN):
        steps = draw_steps(seed, STEPS_A_RUN)
        result = run(seed, steps, _AVAILABILITY)
        checks += result.checks
        assert result.breach is None, report(seed, steps, result)
    progress(", ".join(f"{count} {kind}" for kind, count in sorted(checks.items())))
    assert min(checks[kind] for kind in ("grants", "held", "held back", "offers", "refusals")) > 0, (
        "there was nothing to compare"
    )
