"""Random sequences through the kubelet's device manager and through ours.

How many, and which: see tests/oracle/strategies.py. The seed is printed whether or not a difference is found.
Where the kubelet's device manager cannot run they are skipped among other tests, and a failure for whoever asked for them.
"""

import os
from unittest import mock

import pytest
from hypothesis import given, seed
from hypothesis.strategies import SearchStrategy

from tests.conformance.oracle.conftest import Compare, do_without, searching
from tests.oracle import strategies
from tests.oracle.steps import Case
from tests.oracle.strategies import SEED, SEQUENCES

_KINDS = {"advised": strategies.advised(), "alike": strategies.alike(), "aligned": strategies.aligned()}


@pytest.mark.kubelet(
    *["behaviour 21", "behaviour 33", "behaviour 41", "behaviour 44"],
    *[
        "scenario 6",
        "scenario 7",
        "scenario 8",
        "scenario 9",
        "scenario 22",
        "scenario 56",
        "scenario 57",
        "scenario 98",
    ],
)
@pytest.mark.parametrize("cases", _KINDS.values(), ids=_KINDS)
def test_random_sequences_end_alike(cases: SearchStrategy[Case], compare: Compare) -> None:
    @seed(SEED)
    @searching(SEQUENCES // len(_KINDS))
    @given(cases)
    def end_alike(case: Case) -> None:
        compare(case)

    end_alike()


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [({}, pytest.skip.Exception), ({"ORACLE_SEQUENCES": "1"}, pytest.fail.Exception)],
    ids=["among other tests they are skipped", "asking for them fails"],
)
def test_without_the_kubelet(asked: dict[str, str], outcome: type[BaseException]) -> None:
    with mock.patch.dict(os.environ, asked, clear=True), pytest.raises(outcome, match="no namespace"):
        do_without("no namespace")
