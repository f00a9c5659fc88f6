"""Random sequences through the kubelet's device manager and through ours.

ORACLE_SEQUENCES: how many in all (default 150). ORACLE_SEED: to have the same ones again; printed with the result.
"""

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.conformance.oracle.conftest import Compare
from tests.oracle import strategies
from tests.oracle.steps import Case

_SEQUENCES = int(os.environ.get("ORACLE_SEQUENCES", "150"))
_SEED = int(os.environ.get("ORACLE_SEED") or random.SystemRandom().randrange(2**32))
_KINDS = {"advised": strategies.advised(), "alike": strategies.alike(), "aligned": strategies.aligned()}


@pytest.mark.parametrize("cases", _KINDS.values(), ids=_KINDS)
def test_random_sequences_end_alike(
    cases: SearchStrategy[Case], compare: Compare, record_seed: None, request: pytest.FixtureRequest
) -> None:
    @seed(_SEED)
    @settings(
        max_examples=max(_SEQUENCES // len(_KINDS), 1),
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


@pytest.fixture(scope="session")
def record_seed(pytestconfig: pytest.Config) -> None:
    """The seed is told whether or not something is found."""
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    assert reporter is not None
    reporter.write_line(f"\nORACLE_SEED={_SEED} ORACLE_SEQUENCES={_SEQUENCES}")
