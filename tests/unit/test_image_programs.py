"""Our programs exist in the images by the names by which pages and messages call them."""

import ast
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from nodedevice_common import launcher

from hack.release import debian_root, dockerfile, images
from hack.release.images import DOCKERFILES
from tests.unit.sources import ROOT, parsed

# what is in each image, and where `kubectl exec` reaches it
PROGRAMS: Final = {
    "nodedevice-agent": ["nodedevice-agent"],
    "nodedevice-operator": ["nodedevice-operator", "kubectl-nodedevice"],
}
PAGES: Final = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("charts/nodedevice/**/*.md"),
    *ROOT.glob("charts/nodedevice/templates/NOTES.txt"),
    *ROOT.glob("cli/src/**/*.py"),
]
# what runs in a pod of ours by kubectl exec: up to the end of the line or of the quotation
EXEC: Final = re.compile(r"kubectl exec ([^\n`\"]*?) -- ([^\s`\"']+)")


@pytest.mark.parametrize("image", DOCKERFILES)
def test_the_dockerfile_makes_and_copies_them(image: str) -> None:
    text = (ROOT / DOCKERFILES[image]).read_text()
    assert [Path(each).name for each in dockerfile.read(text).programs] == PROGRAMS[image]
    runs = [json.loads(line.removeprefix("RUN ")) for line in text.splitlines() if line.startswith("RUN ")]
    [made] = [run for run in runs if any("launcher.py" in word for word in run)]
    assert made[1:] == ["-I", "/opt/nodedevice/nodedevice_common/launcher.py", "/usr/local/bin", *PROGRAMS[image]]


def test_the_agents_modules_are_compiled_without_docstrings_too() -> None:
    """As it runs without them (nodedevice_agent.__main__), which costs it a compilation of all modules where they are not."""
    levels = {image: dockerfile.read((ROOT / file).read_text()).levels for image, file in DOCKERFILES.items()}
    assert levels == {"nodedevice-agent": [0, 2], "nodedevice-operator": [0]}


@pytest.mark.parametrize("program", [each for programs in PROGRAMS.values() for each in programs])
def test_each_starts_by_its_name(program: str, tmp_path: Path) -> None:
    """Made as the Dockerfile makes it: by the file itself, alone."""
    made = [sys.executable, "-I", str(Path(launcher.__file__)), str(tmp_path), program]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    shown = subprocess.run([tmp_path / program, "--version"], check=True, capture_output=True, text=True, timeout=120)
    assert re.search(r"\d+\.\d+", shown.stdout)


@pytest.mark.parametrize("image", DOCKERFILES)
def test_the_release_makes_the_same_for_debians_python(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which executes no Dockerfile, and whose images have Python elsewhere."""

    def install(command: list[str], remedy: str) -> str:
        (tmp_path / "root/opt/nodedevice").mkdir(parents=True)
        return ""

    monkeypatch.setattr(debian_root, "run", install)
    monkeypatch.setattr(images, "compile_folder", lambda *_: None)
    stage = dockerfile.read((ROOT / DOCKERFILES[image]).read_text())
    images._install(ROOT, stage, tmp_path / "root", "amd64")
    made = {file.name: file.read_text() for file in (tmp_path / "root/usr/local/bin").iterdir()}
    assert made == {program: launcher.text(program, "/usr/bin/python3") for program in PROGRAMS[image]}
    assert all(file.stat().st_mode & 0o777 == 0o755 for file in (tmp_path / "root/usr/local/bin").iterdir())


def executed() -> list[tuple[str, str, str]]:
    """Where it stands, whose pod it is, what runs there."""
    found = []
    for page in PAGES:
        for target, program in EXEC.findall(page.read_text(encoding="utf-8")):
            if "nodedevice" in target:
                found.append((page.name, "operator" if "operator" in target else "agent", program))
    return found


def test_pages_call_them_by_these_names() -> None:
    found = executed()
    assert len(found) >= 4
    wrong = [each for each in found if each[2] not in PROGRAMS[f"nodedevice-{each[1]}"]]
    assert not wrong


def test_messages_do_not_call_modules() -> None:
    """A person types a program's name; `python -m` is for Dockerfiles and units."""
    for folder in ("node-agent/src", "operator/src", "common/src", "kube/src", "cli/src"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words = node.value.split()
                    assert ("python3", "-m") not in pairwise(words), (
                        f"{path}:{node.lineno}: {shlex.quote(node.value[:80])}"
                    )
