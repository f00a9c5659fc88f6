"""`kubectl nodedevice` in a large cluster in which tenants, and an agent's token, write objects as large as can be: its memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.played_api.serving import kubeconfig

_MOST_MIB: Final = 150.0
# Starts a command and prints its exit status and the most memory that it had. A process of its own, and small: what a child is
# forked from counts as its memory.
_MEASURED: Final = """
import os, sys
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss / 1024)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.robustness.memory.large_cluster"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        ((), 1, "example.com/gpu"),
        (("devices",), 0, "000003-0007-4fe0-9301-9867b12a3899"),
        (("devices", "-o", "json"), 0, '"000003-0007-4fe0-9301-9867b12a3899"'),
        (("why", "pod", "pod-00001"), 1, "requests 1 example.com/gpu"),
        (("why", "pod", "pod-missing"), 2, ""),
    ],
    ids=lambda given: " ".join(given) or "overview" if isinstance(given, tuple) else "",
)
def test_memory(server: str, tmp_path: Path, command: tuple[str, ...], status: int, expected: str) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path, server)), "HOME": str(tmp_path)}
    program = [sys.executable, "-m", "kubectl_nodedevice", "--request-timeout", "5m", *command]
    out = tmp_path / "out"
    started = [sys.executable, "-I", "-S", "-c", _MEASURED, str(out), *program]
    done = subprocess.run(started, env=environment, capture_output=True, text=True, check=True)
    ended, mib = done.stdout.split()
    text = out.read_text(encoding="utf-8")
    assert (int(ended), expected in text) == (status, True), done.stderr
    if "json" in command:
        assert len(json.loads(text)["items"]) > 8 * 19_800
    assert float(mib) <= _MOST_MIB
