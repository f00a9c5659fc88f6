"""The workflows are valid, run each part, and pin each action."""

import re
from pathlib import Path

import yaml

from hack.ci.parts import read
from hack.release.workflows import lint

_ROOT = Path(__file__).parents[3]
_FILES = sorted((_ROOT / ".github/workflows").glob("*.yaml"))


def test_actionlint_finds_nothing() -> None:
    done = lint(_ROOT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_each_part_runs_that_needs_no_node() -> None:
    jobs = yaml.safe_load((_ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]
    without_node = {name for name in read().parts if not name.startswith("real-node-")}
    without_node -= {"install", "from-clone", "upgrade", "machine"}
    assert {*jobs["part"]["strategy"]["matrix"]["part"]} == without_node


def test_each_action_is_pinned_by_commit() -> None:
    for file in _FILES:
        used = re.findall(r"uses: (.+)", file.read_text())
        assert used
        for action in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{file.name}: {action}"
