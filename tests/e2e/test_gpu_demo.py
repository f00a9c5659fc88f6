"""What the README and docs/gpu.md promise of `make demo GPU=dgx-h100`, run as a person would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from hack.cluster.control_plane.control_plane import ControlPlane

_ROOT = Path(__file__).parents[2]
_DEMO = [sys.executable, "-u", "-m", "hack.demo.gpu_demo"]


@pytest.fixture(autouse=True)
def built(control_plane: ControlPlane) -> None:
    """With the session's control plane up, its programs are built: nothing here waits for that."""


def test_gpus_from_the_driver_to_a_pod_and_back() -> None:
    done = subprocess.run([*_DEMO, "dgx-h100"], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("NVIDIA H100 80GB HBM3", "18 NVLinks", "capacity of gpu-node is 7 after", "Xid79", "is 8 after"):
        assert expected in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("t4-pair", ["which the pod holds", "1 of 2 are healthy", "2 of 2 are healthy"]),
        ("mismatch", ["gpu-node.nvidia.com.gpu", "are of different versions: reboot"]),
        ("none", ["the nvml plugin is idle", "No resources found"]),
    ],
)
def test_a_machine_without_a_gpu_to_spare(machine: str, expected: list[str]) -> None:
    done = subprocess.run([*_DEMO, machine], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words for words in expected if words not in done.stdout] == []
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_an_unknown_machine_is_refused_with_those_there_are() -> None:
    done = subprocess.run([*_DEMO, "cray-1"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "dgx-h100" in done.stdout
