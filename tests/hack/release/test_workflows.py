"""The workflows are valid, and run nothing but targets of the Makefile."""

import re
import shutil
from pathlib import Path

import yaml

from hack.ci.parts import read
from hack.release.workflows import lint

_ROOT = Path(__file__).parents[3]
_FILES = sorted((_ROOT / ".github/workflows").glob("*.yaml"))
_TARGETS = set(re.findall(r"^\.PHONY: (\S+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE))


def test_actionlint_finds_nothing() -> None:
    done = lint(_ROOT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    shutil.copytree(_ROOT / ".github", tmp_path / ".github")
    file = tmp_path / ".github/workflows/ci.yaml"
    file.write_text(file.read_text().replace("matrix.part }}", "matrix.goal }}"))
    done = lint(tmp_path)
    assert done.returncode != 0
    assert 'property "goal" is not defined' in done.stdout


def test_each_command_is_a_target() -> None:
    assert _FILES
    for file in _FILES:
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in (step for step in job["steps"] if "run" in step):
                found = re.fullmatch(r'make (\S+)(?: (?:VERSION=\S+|PART="\$PART"))?', step["run"].strip())
                assert found, f"{file.name}: {step['run']}"
                assert found[1] in _TARGETS


def test_each_part_runs_that_needs_no_node() -> None:
    jobs = yaml.safe_load((_ROOT / ".github/workflows/ci.yaml").read_text())["jobs"]
    of_a_node = {name for name in read().parts if name.startswith("real-node-")} | {
        "install",
        "from-clone",
        "upgrade",
        "machine",
    }
    assert {*jobs["part"]["strategy"]["matrix"]["part"]} == set(read().parts) - of_a_node


def test_each_action_is_pinned_by_commit() -> None:
    for file in _FILES:
        used = re.findall(r"uses: (.+)", file.read_text())
        assert used
        for action in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{file.name}: {action}"
