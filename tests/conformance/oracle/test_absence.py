"""Where the kubelet's device manager cannot run: passed over among other tests, a failure for whoever asked for it."""

import pytest

from tests.conformance.oracle.conftest import do_without


def test_among_other_tests_it_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORACLE_SEQUENCES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no namespace"):
        do_without("no namespace")


def test_asking_for_sequences_without_the_kubelet_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_SEQUENCES", "1")
    with pytest.raises(pytest.fail.Exception, match="no namespace"):
        do_without("no namespace")
