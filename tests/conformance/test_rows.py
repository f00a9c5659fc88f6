"""Every line of the kubelet's behaviour is accounted for, by a test that is there or a reason that is given."""

import re
from collections import Counter

import pytest

from tests.conformance.rows import ROOT, Kind, Row, exists
from tests.conformance.rows_behaviour import BEHAVIOUR
from tests.conformance.rows_scenarios import SCENARIOS
from tests.oracle import differences

_TABLES = {"behaviour": (BEHAVIOUR, 73), "scenario": (SCENARIOS, 106)}
_ALL = [pytest.param(row, id=f"{name}-{row.number}") for name, (rows, _) in _TABLES.items() for row in rows]
_TITLES = re.findall(r"^## (.+)$", (ROOT / "docs" / "differences.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("rows", "count"), _TABLES.values(), ids=_TABLES)
def test_every_line_is_there_once(rows: tuple[Row, ...], count: int) -> None:
    assert [row.number for row in rows] == list(range(1, count + 1))


@pytest.mark.parametrize("row", _ALL)
def test_line_is_accounted_for(row: Row) -> None:
    if row.kind in (Kind.SAME, Kind.STRONGER):
        assert row.tests, "a line that is kept is shown by a test"
        assert [test for test in row.tests if not exists(test)] == []
    else:
        assert row.note, "a line that is not kept says why"
        assert not row.tests
    if row.kind is Kind.STRONGER:
        assert row.note in _TITLES


def test_allowances_are_paragraphs() -> None:
    """What the differential tests allow stands in docs/differences.md, under that very title."""
    titles = {value for name, value in vars(differences).items() if name.isupper() and isinstance(value, str)}
    assert titles
    assert titles <= set(_TITLES)


def test_no_paragraph_is_there_twice() -> None:
    assert [title for title, count in Counter(_TITLES).items() if count > 1] == []


@pytest.mark.parametrize("test", ["case:0", "pods:test_nothing", "pods:TestEnd.test_nothing", "machine:runTest"])
def test_a_test_that_is_not_there_is_noticed(test: str) -> None:
    assert not exists(test)
