"""Every command in the documentation is typed here, on the whole product; or it is said who else tries it, or why nobody does.

A new command on a page that is none of these fails, and so does an entry here that no page needs any more.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from hack.cluster.build.binaries import find
from hack.cluster.local.stack import GPU, NODE_A, Stack
from hack.cluster.processes.processes import Process, reserved_ports
from tests.e2e.page_commands import ROOT, PageCommand, page_commands
from tests.e2e.pages_elsewhere import MENTIONED, NOT_TRIED, TRIED_ELSEWHERE

pytestmark = pytest.mark.cluster

COMMANDS: Final = page_commands()
_NOT_HERE: Final = (*TRIED_ELSEWHERE, *NOT_TRIED)
# the tokens and kubeconfig of an agent outside of pods: a block, which has a test of its own
_AGENT_BLOCK: Final = "NODE="
TYPED: Final = list({
    tuple(command.words): command
    for command in COMMANDS
    if not command.text.startswith((*_NOT_HERE, _AGENT_BLOCK)) and command.text not in MENTIONED
}.values())  # fmt: skip


def test_what_is_tried_elsewhere_is_there() -> None:
    for begin, (where, does) in TRIED_ELSEWHERE.items():
        assert any(command.text.startswith(begin) for command in COMMANDS), f"no page says `{begin}` any more"
        assert does in (ROOT / where).read_text(), f"{where} no longer has {does!r}"


def test_every_exception_is_needed() -> None:
    texts = [command.text for command in COMMANDS]
    assert [begin for begin in NOT_TRIED if not any(text.startswith(begin) for text in texts)] == []
    assert [mention for mention in MENTIONED if mention not in texts] == []


def test_make_knows_its_words() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[words.index("make") + 1] for words in (command.words for command in COMMANDS) if "make" in words}
    assert named
    assert named <= targets


@pytest.mark.parametrize("command", TYPED, ids=str)
def test_it_does_what_the_page_says(command: PageCommand, stack: Stack, tmp_path: Path) -> None:
    text = command.text
    for placeholder, value in _meant(stack).items():
        text = re.sub(rf"\b{placeholder}\b", value, text)
    done = _typed(text, _environment(stack, [_image_builder(tmp_path)]))
    assert done.returncode == 0, done.stderr or done.stdout


def test_images_get_the_names_that_the_chart_asks_for(stack: Stack, tmp_path: Path) -> None:
    """The target's own words, to a builder that only listens; what it would build, hack/cluster builds."""
    [command] = {command.text for command in COMMANDS if command.text.startswith("make images")}
    builder = _image_builder(tmp_path)
    done = _typed(command, _environment(stack, [builder]))
    assert done.returncode == 0, done.stderr
    built = [line for line in (builder / "said").read_text().splitlines() if line.startswith("build")]
    [version] = re.findall(r"^appVersion: (\S+)$", (ROOT / "charts/nodedevice/Chart.yaml").read_text(), re.MULTILINE)
    for program, folder in (("nodedevice-operator", "operator"), ("nodedevice-agent", "node-agent")):
        assert f"build --quiet -f {folder}/Dockerfile -t {program}:{version} ." in built


def test_an_agent_outside_of_a_pod(stack: Stack, tmp_path: Path) -> None:
    """The block with a token of its own runs as it stands, on another Node, until the agent renews its Lease."""
    [command] = [command for command in COMMANDS if command.text.startswith(_AGENT_BLOCK)]
    stack.control_plane.add_node("node-c")
    # `exec`, so that the agent is the process that is ended; the rest stands on the page
    script = command.text.replace("NODE=node-a\n", "NODE=node-c\n").replace(
        "\nnodedevice-agent", "\nexec nodedevice-agent"
    )
    with reserved_ports(1) as [port]:
        environment = _environment(stack) | {
            "NODEDEVICE_STATE_DIR": str(tmp_path / "state"),
            "NODEDEVICE_PLUGIN_DIR": str(stack.agents[NODE_A].folder / "outside"),
            "NODEDEVICE_HTTP_ADDRESS": f"127.0.0.1:{port}",
        }
        words = ["/usr/bin/env", "-C", str(tmp_path), *(f"{key}={value}" for key, value in environment.items())]
        agent = Process("agent of node-c", [*words, "bash", "-euo", "pipefail", "-c", script], tmp_path / "log")
        agent.start()
        try:
            lease = ("get", "lease", "node-c", "-n", "nodedevice-agents", "--ignore-not-found", "-o", "name")
            agent.wait_ready(lambda: bool(stack.control_plane.kubectl(*lease)), 60.0)
        finally:
            agent.kill()
            stack.control_plane.remove_node("node-c")
    # what `kubectl auth whoami` said before the agent began
    assert re.search(r"authentication.kubernetes.io/node-name.*node-c", (tmp_path / "log").read_text())


def _typed(text: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        env=environment,
    )


def _meant(stack: Stack) -> dict[str, str]:
    """What stands for a name of the reader's own."""
    folder = stack.agents[NODE_A].folder
    node_device = f"{NODE_A}.{GPU.replace('/', '.')}"
    return {"FILE": str(folder / "checkpoint.json"), "FOLDER": str(folder), "NODE": NODE_A, "NAME": node_device}


def _image_builder(folder: Path) -> Path:
    """A folder with a `docker` that only writes down what it is told."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\necho "$*" >> {folder}/said\n')
    program.chmod(0o755)
    return folder


def _environment(stack: Stack, first: Sequence[Path] = ()) -> dict[str, str]:
    folders = [*map(str, first), str(Path(sys.executable).parent), str(find(["kubectl"])["kubectl"].parent)]
    return {
        **os.environ,
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "KUBECONFIG": str(stack.control_plane.admin_kubeconfig),
        "HOME": str(stack.control_plane.folder),
    }
