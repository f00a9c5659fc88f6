"""The Makefile as its users meet it."""

import re
import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_TEXT: Final = (_ROOT / "Makefile").read_text()


def test_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (\S+)$", _TEXT, re.MULTILINE)
    done = subprocess.run(["make", "-C", _ROOT, "help"], capture_output=True, text=True, check=True)
    assert len(targets) > 20
    assert set(targets) <= {line.split()[0] for line in done.stdout.splitlines()}


def test_generate_never_runs_beside_what_reads_its_files() -> None:
    assert re.search(r"^\.NOTPARALLEL:$", _TEXT, re.MULTILINE), "`make -j check` would read half-written stubs"
