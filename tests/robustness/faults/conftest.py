"""strace, and which cases are tried."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.cluster.build.binaries import find
from hack.cluster.errors import BinaryError


@pytest.fixture(scope="session")
def strace(progress: Callable[[str], None]) -> Path:
    """Debian's. A machine that cannot have it skips what needs it, with the reason."""
    try:
        program = find(["strace"], progress)["strace"]
    except BinaryError as exc:
        pytest.skip(str(exc))
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        pytest.skip(f"{program} does not run; Debian's needs libunwind8: {shown.stderr.strip()}")
    return program
