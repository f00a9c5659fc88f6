"""Every line of the kubelet's behaviour is accounted for, by a test that is there or a reason that is given."""

import re
from collections import Counter

import pytest

from tests.conformance.rows import FILES, ROOT, Kind, Row, exists, has_run, is_on_a_node
from tests.conformance.rows_behaviour import BEHAVIOUR
from tests.conformance.rows_scenarios import SCENARIOS
from tests.conformance.rows_weak_spots import WEAK_SPOTS
from tests.oracle import differences

_TABLES = {"behaviour": (BEHAVIOUR, 73), "scenario": (SCENARIOS, 106), "weak spot": (WEAK_SPOTS, 29)}
_ALL = [pytest.param(row, id=f"{name}-{row.number}") for name, (rows, _) in _TABLES.items() for row in rows]
_TITLES = re.findall(r"^## (.+)$", (ROOT / "docs" / "differences.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("rows", "count"), _TABLES.values(), ids=_TABLES)
def test_every_line_is_there_once(rows: tuple[Row, ...], count: int) -> None:
    assert [row.number for row in rows] == list(range(1, count + 1))


@pytest.mark.parametrize("row", _ALL)
def test_line_is_accounted_for(row: Row) -> None:
    if row.kind is not Kind.KUBELETS:
        assert row.tests, "a line that is kept is shown by a test"
        assert [test for test in row.tests if not exists(test)] == []
    else:
        assert row.note, "a line that is not kept says why"
        assert not row.tests
    if row.kind is Kind.STRONGER:
        assert row.note in _TITLES
    if row.kind is Kind.ON_A_NODE:
        assert any(map(is_on_a_node, row.tests)), "it says so"


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


@pytest.mark.parametrize(
    ("test", "node", "is_it"),
    [
        ("names:test_takes", "::test_takes", True),
        ("names:test_takes", "::test_takes[plain]", True),
        ("names:test_takes", "::test_takes_more", False),
        ("names:TestRoom", "::TestRoom::test_there_is", True),
        ("names:TestRoom.test_there_is", "::TestRoom::test_there_is[full]", True),
        ("names:TestRoom.test_there_is", "::TestRoom::test_there_is_none[x]", False),
        ("case:1", "::test_row[12-newer]", False),
        ("case:12", "::test_row[12-newer]", True),
    ],
)
def test_which_ids_are_of_a_test(test: str, node: str, *, is_it: bool) -> None:
    file = FILES["named" if test.startswith("case:") else "names"]
    assert has_run(test, [f"{file}{node}"]) == is_it
