"""Tells at the end how much of the kubelet's behaviour is kept, by kind."""

from collections import Counter

import pytest

from tests.conformance.rows import Kind
from tests.conformance.rows_behaviour import BEHAVIOUR
from tests.conformance.rows_scenarios import SCENARIOS

_ARE_ROWS_TESTED = pytest.StashKey[bool]()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_ARE_ROWS_TESTED] = any(item.path.name == "test_rows.py" for item in session.items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.stash.get(_ARE_ROWS_TESTED, False):
        return
    terminalreporter.section("the kubelet's behaviour, line by line")
    for name, rows in (("behaviour", BEHAVIOUR), ("its own tests' scenarios", SCENARIOS)):
        counts = Counter(row.kind for row in rows)
        told = ", ".join(f"{kind.value} {counts[kind]}" for kind in Kind)
        terminalreporter.line(f"{name}: {len(rows)} lines: {told}")
