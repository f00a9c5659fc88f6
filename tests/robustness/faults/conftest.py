"""strace, and which cases are tried."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import BinaryError
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.deadlines import environment
from tests.robustness.faults.strace import Strace
from tests.robustness.faults.trial import CONSTANTS

_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")


@pytest.fixture(scope="session")
def strace(progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Strace:
    """Debian's. A machine that cannot have it skips what needs it, with the reason."""
    try:
        program = find(["strace"], progress)["strace"]
    except BinaryError as exc:
        pytest.skip(str(exc))
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        pytest.skip(f"{program} does not run; Debian's needs libunwind8: {shown.stderr.strip()}")
    if os.geteuid() != 0 and _YAMA.exists() and _YAMA.read_text().strip() != "0":
        pytest.skip(f"this user may not attach to a process of its own: run as root, or write 0 into {_YAMA}")
    return Strace(program, tmp_path_factory.mktemp("calls"))


@pytest.fixture
def proxy(installed: ControlPlane) -> Iterator[FaultProxy]:
    """By which the programs reach the API server: as ever, but that connections can be cut."""
    with FaultProxy(installed.admin_kubeconfig, installed.authority.server("fault-proxy")) as made:
        yield made


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of programs that a test starts."""
    for variable, value in environment(CONSTANTS).items():
        monkeypatch.setenv(variable, value)
