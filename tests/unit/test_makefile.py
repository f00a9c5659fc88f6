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


def test_everything_has_all_parts() -> None:
    done = subprocess.run(["make", "-n", "-C", _ROOT, "everything"], capture_output=True, text=True, check=True)
    queue = done.stdout.rpartition("printf")[2].partition("|")[0].split()
    parts = re.findall(r"^\.PHONY: (test-\d|chart|e2e-(?!machine).+)$", _TEXT, re.MULTILINE)
    assert len(parts) > 7
    assert set(parts) <= set(queue)


def test_every_test_has_a_target() -> None:
    """Each file of tests is in exactly one of the parts of `make test` or `make e2e`, or in `make chaos` or `make e2e-machine`."""
    recipes = dict(
        re.findall(
            r"^(test-1|test-2|test-3|test-4|chart|chaos|e2e-chart|e2e-release|e2e-real-node|e2e-machine): .*\n((?:\t.*\n)+)",
            _TEXT,
            re.MULTILINE,
        )
    )
    for file in (_ROOT / "tests").rglob("test_*.py"):
        path = file.relative_to(_ROOT).as_posix()
        homes = [
            name
            for name, recipe in recipes.items()
            if any(f"{path}/".startswith(f"{found}/") for found in re.findall(r"(?<!--ignore )tests/\S+", recipe))
            and not any(path.startswith(f"{found}/") for found in re.findall(r"--ignore (\S+)", recipe))
        ]
        assert len(homes) == 1, f"{path}: {homes}"
