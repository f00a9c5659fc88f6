"""Checks whether the gate's type check refuses a mutant that no unit test notices, such as None as an argument.

Such code could not be merged, and a test for it would only repeat the signature. mutmut (`type_check_command`) and
Stryker (its checkers) do the same. Only survivors of the tests are checked, as a check costs seconds.
"""

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_REFUSED: Final = 1  # mypy's exit status for errors; 2 is for a failure of its own
# an unnecessary comment is not a reason
_ERRORS_ALONE: Final = ("--no-warn-unused-ignores", "--no-warn-redundant-casts")


def refuses(root: Path, file: str, text: str) -> bool:
    """Check with `text` as the source of `file`; never for a file that mypy refuses unchanged."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        mutant = Path(name) / "mutant.py"
        # of another length than the file: mypy takes a file of equal length for the file itself, which it has checked
        mutant.write_text(text + "\n" * (len(text) == len((root / file).read_text(encoding="utf-8"))), encoding="utf-8")
        return _is_clean(root, file) and _status(root, file, "--shadow-file", file, str(mutant)) == _REFUSED


@cache
def _is_clean(root: Path, file: str) -> bool:
    return _status(root, file) == 0


def _status(root: Path, file: str, *options: str) -> int:
    """Checked by the rules of pyproject.toml, with a cache of its own."""
    command = (sys.executable, "-m", "mypy", "--cache-dir", "build/mutants/types", *_ERRORS_ALONE, *options, file)
    return subprocess.run(command, cwd=root, check=False, capture_output=True).returncode
