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
from tests.unit.cli.objects import NODE_DEVICES, node_device

_PROGRAM: Final = (sys.executable, "-m", "kubectl_nodedevice")
_FULL: Final = "error: the output cannot be written: No space left on device"


def _started(server: FakeApiServer, folder: Path, *command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(folder, server.address))}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def test_ctrl_c_while_it_waits_ends_it_without_a_word(server: FakeApiServer, tmp_path: Path) -> None:
    asked = threading.Event()

    def fault(_: Request) -> Answer | None:
        asked.set()
        return Answer(hold=True)

    server.fault = fault
    with _started(server, tmp_path, *_PROGRAM, "devices") as running:
        assert asked.wait(60)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (out, err, running.returncode) == ("", "", -signal.SIGINT)


def test_a_pipe_that_is_closed_early(server: FakeApiServer, tmp_path: Path) -> None:
    server.objects[NODE_DEVICES] += [node_device(f"n{each}") for each in range(3000)]
    with _started(server, tmp_path, *_PROGRAM, "devices") as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.readline().startswith("NODE")
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 141


def test_completion(run: Run) -> None:
    assert all("kubectl-nodedevice" in run("completion", shell).out for shell in ("bash", "zsh", "fish"))
    assert run("completion", "kubectl").out == '#!/bin/sh\nexec kubectl-nodedevice __complete "$@"\n'
    assert run("__complete", "de").out.splitlines()[0].startswith("devices\t")
    assert run("__complete", "devices", "--re").out.splitlines()[0].startswith("--resource\t")
    assert run("__complete", "x").out == ":4\n"
    # nothing is typed yet
    names = [line.partition("\t")[0] for line in run("__complete").out.splitlines()]
    assert (names[0], names[-2:]) == ("open", ["completion", ":4"])
    # what has no words of help
    assert run("__complete", "devices", "-o", "").out == "wide\njson\nyaml\n:4\n"


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("$P devices >&-", 0, ""),
        ("$P devices --node x 2>&- >&-", 2, ""),
        ("$P devices > /dev/full", 2, f"{_FULL}; make room for it\n"),
        ("LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 $P -o wide >/dev/null", 1, ""),
        ("mkdir gone; cd gone; rmdir ../gone; KUBECONFIG=x $P devices", 2, "error: "),
        ("env -u KUBECONFIG -u HOME $P devices", 2, "error: there is no kubeconfig"),
    ],
)
def test_where_it_is_started(server: FakeApiServer, tmp_path: Path, script: str, status: int, words: str) -> None:
    """Streams that are closed or full, terminals with fewer characters, folders that are gone. $P: the program."""
    server.objects[NODE_DEVICES][0]["status"]["devices"][2]["message"] = "ü" * 100
    with _started(server, tmp_path, "sh", "-c", f"P='{' '.join(_PROGRAM)}'; {script}") as running:
        _, err = running.communicate()
    assert (running.returncode, err[: len(words)], "Traceback" in err) == (status, words, False), err
    assert words or err == ""
