"""`make help` fits a screen; `make help ALL=1` has every target."""

import re
import subprocess

from tests.unit.sources import ROOT

_MOST_LINES, _MOST_CHARACTERS = 40, 100


def _printed(*variables: str) -> list[str]:
    done = subprocess.run(
        ["make", "--silent", "help", *variables], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def _targets(printed: list[str]) -> list[str]:
    return [found[1] for line in printed if (found := re.match(r"  ([a-z0-9-]+) ", line))]


def test_it_fits_a_screen() -> None:
    usual, every = _printed(), _printed("ALL=1")
    assert len(usual) <= _MOST_LINES
    assert [line for line in (*usual, *every) if len(line) > _MOST_CHARACTERS] == []
    assert {"demo", "up", "install", "test", "docs", "bench"} <= {*_targets(usual)}
    assert usual[-1] == "Every target, with its variables: make help ALL=1"


def test_all_of_it_has_each_target_once() -> None:
    phony = re.findall(r"^\.PHONY: ([a-z0-9-]+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert _targets(_printed("ALL=1")) == phony
