"""Every command in the documentation is typed here, on the whole product; or it is said where else it is tried.

A new command on a page that is neither fails, and so does an entry here that no page needs any more.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import find
from tests.cluster.stack import NODE_A, Stack
from tests.e2e.page_commands import ROOT, PageCommand, page_commands

pytestmark = pytest.mark.cluster

# What is not typed here: how it begins, and the file that tries it.
ELSEWHERE: Final = {
    "make demo": "tests/e2e/test_demo.py",
    "make up": "tests/e2e/test_demo.py",
    "make test": ".ci/run",
    "make check": ".ci/run",
    "make unit": ".ci/run",
    "make setup": ".ci/run",
    "make binaries": "tests/cluster/test_binaries.py",
    "helm ": "tests/chart/test_lifecycle.py",
}
COMMANDS: Final = page_commands()
TYPED: Final = [command for command in COMMANDS if not command.text.startswith(tuple(ELSEWHERE))]


def test_what_is_tried_elsewhere_is_there() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for begin, where in ELSEWHERE.items():
        meant = [command for command in COMMANDS if command.text.startswith(begin)]
        assert meant, f"no page says `{begin}` any more"
        assert (ROOT / where).exists()
        assert {command.words[1] for command in meant if begin.startswith("make ")} <= targets


@pytest.mark.parametrize("command", TYPED, ids=str)
def test_it_does_what_the_page_says(command: PageCommand, stack: Stack) -> None:
    text = command.text
    for placeholder, value in _meant(stack).items():
        text = re.sub(rf"\b{placeholder}\b", value, text)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        env=_environment(stack),
    )
    assert done.returncode == 0, done.stderr or done.stdout


def _meant(stack: Stack) -> dict[str, str]:
    """What stands for a name of the reader's own."""
    folder = stack.agents[NODE_A].folder
    return {"FILE": str(folder / "checkpoint.json"), "FOLDER": str(folder)}


def _environment(stack: Stack) -> dict[str, str]:
    folders = [str(Path(sys.executable).parent), str(find(["kubectl"])["kubectl"].parent), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "KUBECONFIG": str(stack.control_plane.admin_kubeconfig),
        "HOME": str(stack.control_plane.folder),
    }
