"""The first steps of tests/robustness/host, with fixed seeds: no device is in two pods, whatever happens to the host."""

import pytest

from tests.robustness.host.shrink import report
from tests.robustness.host.steps import STEPS_A_RUN, draw_steps, run


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_no_device_is_ever_in_two_pods(seed: int) -> None:
    steps = draw_steps(seed, STEPS_A_RUN)
    result = run(seed, steps)
    assert result.breach is None, report(seed, steps, result)
    assert all(result.checks[kind] for kind in ("grants", "held", "offers", "refusals")), "there was nothing to compare"
