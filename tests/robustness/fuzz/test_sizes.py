"""Whatever a plugin or a file is made of, at its biggest and beyond it costs the agent so many MiB and no more."""

import subprocess
import sys

import pytest

from tests.robustness.fuzz.sizes import CASES

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
_PATIENCE_SECONDS = 120


@pytest.mark.kubelet("weak spot 28")
@pytest.mark.parametrize("case", CASES)
def test_memory_has_a_bound(case: str) -> None:
    _, most_mib = CASES[case]
    command = [sys.executable, "-m", "tests.robustness.fuzz.sizes", case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= most_mib
