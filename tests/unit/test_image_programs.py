"""The images contain the programs under the names that pages use."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from nodedevice_common import launcher

from hack.release import dockerfile
from hack.release.images import DOCKERFILES
from tests.unit.sources import ROOT

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


@pytest.mark.parametrize("program", [each for programs in PROGRAMS.values() for each in programs])
def test_each_starts_by_its_name(program: str, tmp_path: Path) -> None:
    """Made as the Dockerfile makes it: by the file itself, alone."""
    made = [sys.executable, "-I", str(Path(launcher.__file__)), str(tmp_path), program]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    shown = subprocess.run([tmp_path / program, "--version"], check=True, capture_output=True, text=True, timeout=120)
    assert re.search(r"\d+\.\d+", shown.stdout)


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
