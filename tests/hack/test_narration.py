"""What ends a demo: Ctrl-C, an order to end, a closed terminal; but not one that nohup keeps from it."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import os, signal
from hack.demo.narration import listen_for_stop, narrate
signal.signal(signal.{name}, signal.{before})
listen_for_stop()
try:
    os.kill(os.getpid(), signal.{name})
    narrate("goes on")
except KeyboardInterrupt:
    print("ends in order")
"""


@pytest.mark.parametrize(
    ("name", "before", "then"),
    [
        pytest.param("SIGINT", "SIG_DFL", "ends in order", id="Ctrl-C"),
        pytest.param("SIGINT", "SIG_IGN", "ends in order", id="started in the background by a shell"),
        pytest.param("SIGTERM", "SIG_DFL", "ends in order", id="terminated"),
        pytest.param("SIGHUP", "SIG_DFL", "ends in order", id="terminal closed"),
        pytest.param("SIGHUP", "SIG_IGN", "== goes on", id="nohup"),
    ],
)
def test_what_ends_it(name: str, before: str, then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(name=name, before=before)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, then), done.stderr
