"""The hooks before a commit, in a checkout where nothing is set up yet. Each is run as pre-commit runs it."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

_CONFIG: Final = Path(__file__).parents[2] / ".pre-commit-config.yaml"
_HOOKS: Final = {hook["id"]: hook for repo in yaml.safe_load(_CONFIG.read_text())["repos"] for hook in repo["hooks"]}
# its setup makes a ruff that shows what it is called with; real ones fetch all tools
_MAKEFILE: Final = """\
setup:
	@mkdir -p .venv/bin
	@printf '#!/bin/sh\\nfor each; do echo "$$each"; done\\n' >.venv/bin/ruff
	@chmod +x .venv/bin/ruff
types imports: setup
	@echo $@
"""


@pytest.mark.parametrize(
    ("hook", "printed"),
    [
        ("ruff", ["check", "--fix", "--force-exclude", "a b.py", "c.py"]),
        ("ruff-format", ["format", "--force-exclude", "a b.py", "c.py"]),
        ("types", ["types"]),
        ("imports", ["imports"]),
    ],
)
def test_first_commit_of_a_fresh_checkout(tmp_path: Path, hook: str, printed: list[str]) -> None:
    (tmp_path / "Makefile").write_text(_MAKEFILE)
    command = _command(_HOOKS[hook], ["a b.py", "c.py"])
    # what a make that runs these tests passes to the makes below it
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == printed


def test_hooks_that_get_files_make_one_venv_at_a_time() -> None:
    """pre-commit starts several of a hook side by side when many files are committed."""
    for hook in _HOOKS.values():
        assert hook.get("require_serial") or hook.get("pass_filenames") is False


def _command(hook: dict[str, Any], files: list[str]) -> list[str]:
    return [*shlex.split(hook["entry"]), *(files if hook.get("pass_filenames", True) else [])]
