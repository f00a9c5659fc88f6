"""Each line of docs/threat-model.md names the test that holds it, and that test exists."""

import ast
import re

import pytest

from tests.unit.sources import ROOT, parsed

PAGE = ROOT / "docs" / "threat-model.md"
NAMED = sorted(set(re.findall(r"`(tests/[^`]+\.py::[^`]+)`", PAGE.read_text(encoding="utf-8"))))


def rows() -> list[str]:
    """Those of the tables, without their heads."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| it may |")]


def test_every_row_names_a_test() -> None:
    assert len(rows()) > len(NAMED) // 2
    assert [row for row in rows() if "`tests/" not in row] == []


@pytest.mark.parametrize("name", NAMED)
def test_it_exists(name: str) -> None:
    path, *where = name.split("::")
    body: list[ast.stmt] = parsed(ROOT / path).body
    for part in where:
        found = [each for each in body if getattr(each, "name", "") == part]
        assert found, f"{path} has no {part}: correct docs/threat-model.md"
        body = getattr(found[0], "body", [])
