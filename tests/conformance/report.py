"""Which rows of the kubelet's behaviour were shown by the tests of this run, read from their markers.

With --kubelet-rows the run is of nothing but tests/conformance and tests with the marker. It fails then, and where
ORACLE_SEQUENCES is set (as in both halves of CI's tests), when a row that a selected test carries was not shown: each of its tests
in this run failed or was skipped.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.rows import ROWS, TABLES, Kind

_FOLDER = Path(__file__).parent
_TESTS = _FOLDER.parent
_ROW = rf"(?:{'|'.join(TABLES)}) \d+"
# one row in quotes, or several with commas between them
_MARKED = re.compile(rf'"({_ROW}(?:, {_ROW})*)"')


class KubeletRows:
    """carried: the rows that selected tests carry. passed, failed: of these, by the outcome of their tests."""

    def __init__(self, *, is_alone: bool = False, is_strict: bool = False) -> None:
        self._is_alone = is_alone
        self._is_strict = is_strict
        self._is_reported = is_alone
        # by the id of a test
        self._rows: dict[str, tuple[str, ...]] = {}
        self.carried: set[str] = set()
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item], config: pytest.Config) -> None:
        for item in items:
            self._rows[item.nodeid] = found = rows_of(item)
            if unknown := [row for row in found if row not in ROWS]:
                raise pytest.UsageError(f"{item.nodeid}: the kubelet has no row {', '.join(unknown)}")
        if self._is_alone:
            others = [item for item in items if not self._rows[item.nodeid] and _FOLDER not in item.path.parents]
            items[:] = [item for item in items if item not in set(others)]
            config.hook.pytest_deselected(items=others)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.carried.update(row for item in session.items for row in self._rows.get(item.nodeid, ()))
        self._is_reported |= self._is_strict or any(item.path.parent == _FOLDER for item in session.items)
        self._is_reported &= not session.config.option.collectonly

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.update(self._rows.get(report.nodeid, ()))
        elif report.when == "call" and report.passed:
            self.passed.update(self._rows.get(report.nodeid, ()))

    def shown(self) -> set[str]:
        return self.passed - self.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_strict and self._is_reported and self.carried - self.shown():
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._is_reported:
            return
        terminalreporter.section("the kubelet's behaviour, row by row")
        for name, rows in TABLES.items():
            terminalreporter.line(f"{name}: {len(rows)} rows")
            for kind in Kind:
                found = [f"{name} {number}" for number, row in rows.items() if row.kind is kind]
                terminalreporter.line(f"  {kind.value}: {self._summary(found)}")
        for row in _in_order(self.carried - self.shown()):
            terminalreporter.line(f"not shown: {row}, {ROWS[row].text}")
        if not self._is_alone:
            return
        elsewhere: dict[str, list[str]] = defaultdict(list)
        for row in _in_order(row for row in ROWS if row not in self.carried and ROWS[row].kind is not Kind.KUBELETS):
            elsewhere[", ".join(sorted({str(file.parent) for file in marked()[row]}))].append(row)
        for folders, missing in elsewhere.items():
            terminalreporter.line(f"not run here, but in {folders}: {', '.join(missing)}")

    def _summary(self, rows: list[str]) -> str:
        if not rows or ROWS[rows[0]].kind is Kind.KUBELETS:
            return str(len(rows))
        carried, shown = len(self.carried.intersection(rows)), len(self.shown().intersection(rows))
        return f"{len(rows)} ({shown} shown by tests of this run, {len(rows) - carried} have tests elsewhere)"


def rows_of(item: pytest.Item) -> tuple[str, ...]:
    return tuple(row for mark in item.iter_markers("kubelet") for row in mark.args)


@cache
def marked() -> dict[str, list[Path]]:
    """The files, from the root, whose tests carry each row; read from the source, whatever this run collects."""
    found = defaultdict(list)
    for file in set(_TESTS.rglob("test_*.py")) - {_FOLDER / "test_rows.py"}:
        for rows in _MARKED.findall(file.read_text(encoding="utf-8")):
            for row in rows.split(", "):
                found[row].append(file.relative_to(_TESTS.parent))
    return found


def _in_order(rows: Iterable[str]) -> list[str]:
    order = {row: place for place, row in enumerate(ROWS)}
    return sorted(rows, key=order.__getitem__)
