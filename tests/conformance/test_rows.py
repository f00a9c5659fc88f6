"""Every row of the kubelet's behaviour is accounted for: by a test that carries it, or by a reason."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.report import KubeletRows, marked
from tests.conformance.rows import ROWS, TABLES, Kind, Row
from tests.oracle import differences

_DIFFERENCES = Path(__file__).parents[2] / "docs/differences.md"
_ROW = "behaviour 1"
_TITLES = re.findall(r"^## (.+)$", _DIFFERENCES.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_is_there() -> None:
    assert {name: list(rows) for name, rows in TABLES.items()} == {
        "behaviour": list(range(1, 74)),
        "scenario": list(range(1, 107)),
        "weak spot": list(range(1, 30)),
    }


@pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)
def test_row_is_accounted_for(name: str, row: Row) -> None:
    files = marked().get(name, [])
    if row.kind is Kind.KUBELETS:
        assert row.note, "a row that is not ours gives the reason"
        assert not files
    else:
        assert files, "a row that is ours is carried by a test"
    if row.kind is Kind.STRONGER:
        assert row.note in _TITLES
    if row.kind is Kind.ON_A_NODE:
        assert any("real_node" in file.parts for file in files)


def test_allowances_are_paragraphs() -> None:
    """What the differential tests allow stands in docs/differences.md, under that very title."""
    titles = {value for name, value in vars(differences).items() if name.isupper() and isinstance(value, str)}
    assert titles
    assert titles <= set(_TITLES)


def test_no_paragraph_is_there_twice() -> None:
    assert [title for title, count in Counter(_TITLES).items() if count > 1] == []


@pytest.mark.parametrize(
    ("outcome", "is_strict", "status"),
    [("passed", True, 0), ("failed", True, 1), ("skipped", True, 1), ("skipped", False, 0)],
)
def test_a_run_for_the_rows_fails_where_one_was_not_shown(
    request: pytest.FixtureRequest, outcome: Any, *, is_strict: bool, status: int
) -> None:
    rows = KubeletRows(is_strict=is_strict)
    item = pytest.Function.from_parent(request.node.parent, name="of_a_row", callobj=lambda: None)
    item.add_marker(pytest.mark.kubelet(_ROW))
    session: Any = type("Session", (), {"items": [item], "config": request.config, "exitstatus": 0})()
    rows.pytest_collection_modifyitems(session.items, request.config)
    rows.pytest_collection_finish(session)
    rows.pytest_runtest_logreport(pytest.TestReport(item.nodeid, item.location, {}, outcome, None, "call"))
    rows.pytest_sessionfinish(session)
    assert session.exitstatus == status
    assert rows.shown() == ({_ROW} if outcome == "passed" else set())


def test_a_row_that_is_not_there_is_noticed(request: pytest.FixtureRequest) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="of_a_row", callobj=lambda: None)
    item.add_marker(pytest.mark.kubelet("behaviour 74"))
    with pytest.raises(pytest.UsageError, match="no row behaviour 74"):
        KubeletRows().pytest_collection_modifyitems([item], request.config)
