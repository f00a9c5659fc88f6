"""Random sequences through the kubelet's device manager and through ours.

How many, and which: see tests/oracle/strategies.py. The seed is told whether or not something is found.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.conformance.oracle.conftest import Compare
from tests.oracle import strategies
from tests.oracle.steps import Case
from tests.oracle.strategies import SEED, SEQUENCES

_KINDS = {"advised": strategies.advised(), "alike": strategies.alike(), "aligned": strategies.aligned()}


@pytest.mark.kubelet(
    "behaviour 21",
    "behaviour 33",
    "behaviour 41",
    "behaviour 44",
    "scenario 6",
    "scenario 7",
    "scenario 8",
    "scenario 9",
    "scenario 22",
    "scenario 56",
    "scenario 57",
    "scenario 98",
)
@pytest.mark.parametrize("cases", _KINDS.values(), ids=_KINDS)
def test_random_sequences_end_alike(cases: SearchStrategy[Case], compare: Compare) -> None:
    @seed(SEED)
    @settings(
        max_examples=max(SEQUENCES // len(_KINDS), 1),
        deadline=None,
        database=None,
        # shrinking is what makes a counter-example readable; explaining it would take as long again
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def end_alike(case: Case) -> None:
        compare(case)

    end_alike()
