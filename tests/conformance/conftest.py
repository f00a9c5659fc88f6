"""Tells at the end how much of the kubelet's behaviour is kept, by kind, and for how many lines a test has shown it in this run."""

from collections.abc import Collection, Sequence

import pytest

from tests.conformance.rows import Kind, Row, has_run
from tests.conformance.rows_behaviour import BEHAVIOUR
from tests.conformance.rows_scenarios import SCENARIOS
from tests.conformance.rows_weak_spots import WEAK_SPOTS

_TABLES = (("behaviour", BEHAVIOUR), ("its own tests' scenarios", SCENARIOS), ("weak spots", WEAK_SPOTS))
_ARE_ROWS_TESTED = pytest.StashKey[bool]()
# ids of tests; a report knows no session
_PASSED: set[str] = set()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_ARE_ROWS_TESTED] = any(item.path.name == "test_rows.py" for item in session.items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _PASSED.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.stash.get(_ARE_ROWS_TESTED, False):
        return
    terminalreporter.section("the kubelet's behaviour, line by line")
    for name, rows in _TABLES:
        terminalreporter.line(f"{name}: {len(rows)} lines")
        for kind in Kind:
            terminalreporter.line(f"  {kind.value}: {_told([row for row in rows if row.kind is kind], _PASSED)}")


def _told(rows: Sequence[Row], passed: Collection[str]) -> str:
    """How many, and where they are shown: by a test that has passed just now, or by others, which other targets of make run."""
    tested = [row for row in rows if row.tests]
    here = sum(any(has_run(test, passed) for test in row.tests) for row in tested)
    shown = f" ({here} shown by tests of this run, {len(tested) - here} by tests elsewhere)" if tested else ""
    return f"{len(rows)}{shown}"
