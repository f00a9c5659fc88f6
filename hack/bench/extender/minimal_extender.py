"""Runs the minimal extender (minimal/main.go) with the account of the product's, in its place."""

import base64
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import SCHEDULER, Program
from tests.cluster.processes.processes import Process

_NAME = "minimal-extender"


def build(progress: Callable[[str], None]) -> None:
    """Build it if the cache lacks it."""
    find([_NAME], progress)


def minimal_program(control_plane: ControlPlane, folder: Path, port: int) -> Program:
    """The minimal extender, not started yet. port: for kube-scheduler, and for its readiness."""
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = control_plane.service_account_kubeconfig(SYSTEM_NAMESPACE, SCHEDULER, folder / "kubeconfig")
    content = yaml.safe_load(kubeconfig.read_text())
    [cluster], [user] = content["clusters"], content["users"]
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    address = f"127.0.0.1:{port}"
    command = [str(find([_NAME])[_NAME]), "-listen", address, "-server", cluster["cluster"]["server"]]
    command += ["-authority", str(authority), "-token", user["user"]["tokenFile"]]
    return Program(Process(_NAME, command, folder / "log"), address, folder)
