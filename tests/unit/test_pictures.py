"""README's picture shows the programs of today: a command or a column that was removed fails here.

So does a picture that needs a network, or one that is too large.
"""

import ast
import re
import shlex
from typing import Final
from xml.etree import ElementTree

import click
import pytest
from kubectl_nodedevice import program

from hack.pictures.svg import THEMES, lines_of
from tests.unit.sources import ROOT, parsed

FOLDER: Final = ROOT / "docs/pictures"
NAMES: Final = ("overview",)
MOST_BYTES: Final = 300_000
_PLUGIN: Final = "kubectl nodedevice"


def text_of(name: str, theme: str = "light") -> list[str]:
    return lines_of((FOLDER / f"{name}-{theme}.svg").read_text(encoding="utf-8"))


def check_command(line: str) -> None:
    """Parse it as the program does, without running it. Raises click.UsageError."""
    words = shlex.split(line.removeprefix(_PLUGIN))
    context = program.root.make_context(program.NAME, words)
    found: click.Command = program.root
    while isinstance(found, click.Group) and words:
        name, command, words = found.resolve_command(context, words)
        assert command is not None
        found = command
        context = command.make_context(name, list(words), parent=context)


def commands(lines: list[str]) -> list[str]:
    """Those of the program, typed or advised."""
    found = [line.strip().removeprefix("$ ") for line in lines]
    return [line for line in found if line == _PLUGIN or line.startswith(f"{_PLUGIN} ")]


def headers(lines: list[str]) -> list[list[str]]:
    """The columns of each table."""
    cells = [re.split(r" {2,}", line.strip()) for line in lines]
    return [row for row in cells if len(row) > 2 and all(re.fullmatch(r"[A-Z][A-Z -]*", cell) for cell in row)]


def tables_of_the_program() -> list[set[str]]:
    """The columns of each table that it makes, as they stand in its source."""
    found = []
    for path in (ROOT / "cli/src").rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table":
                texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                found.append({each for each in texts if isinstance(each, str)})
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Tuple | ast.List):
                texts = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)]
                found.append({each for each in texts if isinstance(each, str)})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_each_command_in_a_picture_is_one_of_the_program(name: str) -> None:
    found = commands(text_of(name))
    assert len(found) >= 2
    for each in found:
        check_command(each)


def test_the_first_screen_has_the_columns_of_the_program() -> None:
    tables = tables_of_the_program()
    found = headers(text_of("overview"))
    assert found
    for row in found:
        assert any(set(row) <= table for table in tables), row


def test_they_are_small_and_need_no_network() -> None:
    files = sorted(FOLDER.iterdir())
    assert [file.name for file in files] == sorted(f"{name}-{theme}.svg" for name in NAMES for theme in THEMES)
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES
    for file in files:
        text = file.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert not re.findall(r"url\(\s*[\"']?http|href|@import|<script|<image", text)
