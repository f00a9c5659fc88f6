"""Random sequences through the kubelet's device manager and through ours.

How many, and which: see tests/oracle/strategies.py. The seed is printed whether or not a difference is found.
Where the kubelet's device manager cannot run they are skipped among other tests, and a failure for whoever asked for them.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.conformance.oracle.conftest import Compare, do_without
from tests.oracle import strategies
from tests.oracle.steps import Case
from tests.oracle.strategies import SEED, SEQUENCES

_KINDS = {"advised": strategies.advised(), "alike": strategies.alike(), "aligned": strategies.aligned()}


@pytest.mark.kubelet(
    *(
        "behaviour 21",
        "behaviour 33",
        "behaviour 41",
        "behaviour 44",
        "scenario 6",
        "scenario 7",
        "scenario 8",
        "scenario 9",
    ),
    *("scenario 22", "scenario 56", "scenario 57", "scenario 98"),
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


def test_among_other_tests_they_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORACLE_SEQUENCES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no namespace"):
        do_without("no namespace")


def test_asking_for_sequences_without_the_kubelet_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_SEQUENCES", "1")
    with pytest.raises(pytest.fail.Exception, match="no namespace"):
        do_without("no namespace")
