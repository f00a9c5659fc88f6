"""Measures a start: CPU seconds of an agent from its exec until device plugins can register. Needs no API server."""

import itertools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from hack.bench.footprint import cpu_seconds
from hack.bench.results import Result, result
from tests.cluster.errors import ComponentError
from tests.cluster.processes.processes import tail

_RUNS = 30
_GOAL_SECONDS = 0.45
_READY_SECONDS = 60
# No server listens there. JSON: in a pod the agent reads no YAML.
_KUBECONFIG = """
{
  "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:9", "insecure-skip-tls-verify": true}}],
  "users": [{"name": "agent", "user": {"token": "none"}}],
  "contexts": [{"name": "none", "context": {"cluster": "none", "user": "agent"}}],
  "current-context": "none"
}
"""


def start(folder: Path) -> dict[str, Result]:
    """folder: for files of the agents; its path is short."""
    kubeconfig = folder / "nowhere.kubeconfig"
    kubeconfig.write_text(_KUBECONFIG)
    # the first start finds an empty page cache
    measured = [_start_seconds(folder / f"start-{run}", kubeconfig) for run in range(_RUNS + 1)]
    return {"agent_start_cpu": result(measured[1:], "s", _GOAL_SECONDS)}


def _start_seconds(folder: Path, kubeconfig: Path) -> float:
    folder.mkdir()
    flags = {
        "node-name": "node-a",
        "kubeconfig": kubeconfig,
        "state-dir": folder / "state",
        "plugin-dir": folder / "plugins",
        "http-address": "127.0.0.1:0",
        "runtime": "none",
    }
    given = itertools.chain.from_iterable((f"--{flag}", str(value)) for flag, value in flags.items())
    # not through the wrapper that ties processes to this one: its cost would count
    with (folder / "log").open("wb") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "nodedevice_agent", "run", *given], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not _is_served(folder / "plugins" / "kubelet.sock"):
            if agent.poll() is not None or time.monotonic() > deadline:
                raise ComponentError("agent", "does not serve device plugins", folder / "log", tail(folder / "log"))
            time.sleep(0.002)
        return cpu_seconds(agent.pid)
    finally:
        agent.kill()
        agent.wait()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fsencode(path)) == 0
