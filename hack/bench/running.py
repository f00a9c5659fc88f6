"""Shared by all benches: a folder, and lines that show progress."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hack.bench import trees

_ROOT: Final = Path(__file__).parents[2]


@contextmanager
def bench_folder() -> Iterator[Path]:
    """A folder that is removed at the end. Its name is short, because socket paths have 107 bytes at most.

    Programs that a bench starts find their modules compiled, as in the images.
    """
    show_progress("compiling modules")
    trees.compile_modules(Path(sys.executable), _ROOT)
    folder = Path(tempfile.mkdtemp(prefix="nd-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show_progress(line: str) -> None:
    """Print to standard error: standard output has the results."""
    print(f"  {line}", file=sys.stderr, flush=True)
