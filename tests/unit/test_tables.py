"""Tables of the pages stay readable: cells are short, and each row has as many as the table's head."""

import re
from itertools import groupby
from pathlib import Path

import pytest

from docs.tables import LONGEST

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("charts/**/*.md")])


def _tables(text: str) -> list[list[list[str]]]:
    """Cells by row and table. A pipe after a backslash is text; what is in a fenced block is no table."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    groups = groupby(text.splitlines(), key=lambda line: line.startswith("|"))
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        for is_table, lines in groups
        if is_table
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_cells(page: Path) -> None:
    for rows in _tables(page.read_text(encoding="utf-8")):
        assert [row for row in rows if len(row) != len(rows[0])] == []
        too_long = [cell for row in rows for cell in row if len(cell) > LONGEST]
        assert too_long == [], f"at most {LONGEST} characters: move the rest below the table"
