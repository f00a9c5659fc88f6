"""The program as a process: Ctrl-C, a pipe that is closed early, and completion."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.unit.cli.api_server import Answer, FakeApiServer, Request, kubeconfig
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import node_device

_PROGRAM: Final = (sys.executable, "-m", "kubectl_nodedevice")


def _started(server: FakeApiServer, folder: Path, *arguments: str, **more: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(folder, server.address)), **more}
    pipe = subprocess.PIPE
    return subprocess.Popen([*_PROGRAM, *arguments], env=environment, stdout=pipe, stderr=pipe, text=True)


def test_ctrl_c_while_it_waits_ends_it_without_a_word(server: FakeApiServer, tmp_path: Path) -> None:
    asked = threading.Event()

    def fault(_: Request) -> Answer | None:
        asked.set()
        return Answer(hold=True)

    server.fault = fault
    with _started(server, tmp_path, "devices") as running:
        assert asked.wait(60)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (out, err, running.returncode) == ("", "", -signal.SIGINT)


def test_a_pipe_that_is_closed_early(server: FakeApiServer, tmp_path: Path) -> None:
    server.objects["/apis/nodedevice.io/v1alpha1/nodedevices"] += [node_device(f"n{each}") for each in range(3000)]
    with _started(server, tmp_path, "devices") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("NODE")
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""
    assert running.returncode == 141


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_shell(run: Run, shell: str) -> None:
    ran = run("completion", shell)
    assert ran.status == 0
    assert "kubectl-nodedevice" in ran.out


def test_completion_by_kubectl(run: Run) -> None:
    assert run("completion", "kubectl").out == '#!/bin/sh\nexec kubectl-nodedevice __complete "$@"\n'
    assert run("__complete", "de").out.splitlines()[0].startswith("devices\t")
    assert run("__complete", "devices", "--re").out.splitlines()[0].startswith("--resource\t")
    assert run("__complete", "x").out == ":4\n"


def test_a_shell_asks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KUBECTL_NODEDEVICE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "kubectl-nodedevice unc")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run().out == "plain,uncordon\n"
