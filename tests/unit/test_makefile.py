"""The Makefile as its users meet it."""

import re
import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_TEXT: Final = (_ROOT / "Makefile").read_text()
_MOST_LINES, _MOST_CHARACTERS = 40, 100


def _help(*variables: str) -> str:
    command: list[str | Path] = ["make", "--silent", "-C", _ROOT, "help", *variables]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_help_fits_a_screen() -> None:
    usual, every = _help().splitlines(), _help("ALL=1").splitlines()
    assert len(usual) <= _MOST_LINES
    assert [line for line in (*usual, *every) if len(line) > _MOST_CHARACTERS] == []
    assert {"demo", "up", "install", "test", "docs", "bench"} <= {line.split()[0] for line in usual if line[:2] == "  "}
    assert usual[-1] == "Every target, with its variables: make help ALL=1"


def test_all_of_help_lists_every_target_in_a_group() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", _TEXT, re.MULTILINE)
    groups = [group.splitlines() for group in _help("ALL=1").removeprefix("\n").split("\n\n")]
    assert [title for title, *_ in groups] == re.findall(r"^##@ (.+)$", _TEXT, re.MULTILINE)
    # details are indented further
    listed = [line.split()[0] for _, *lines in groups for line in lines if re.match(r"  \S", line)]
    assert listed == targets
    assert min(len(lines) for _, *lines in groups) > 2
