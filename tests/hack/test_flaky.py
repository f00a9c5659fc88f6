"""`make flaky`: what runs there really stands still, has the share of the CPU that it is given, and is gone afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.ci import flaky


def _v1_root(tmp_path: Path) -> Path:
    for controller in ("freezer", "cpu"):
        (tmp_path / controller).mkdir()
    return tmp_path


def test_v1_has_a_folder_in_each_controller(tmp_path: Path) -> None:
    made = flaky._v1(0.25, _v1_root(tmp_path))
    cpu = tmp_path / "cpu" / "nodedevice-flaky"
    quota, period = (int((cpu / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    assert quota / period == 0.25 * (os.cpu_count() or 1)
    made.set_frozen(True)
    assert (tmp_path / "freezer/nodedevice-flaky/freezer.state").read_text() == "FROZEN"
    made.set_frozen(False)
    assert (tmp_path / "freezer/nodedevice-flaky/freezer.state").read_text() == "THAWED"


def test_v2_has_one_folder(tmp_path: Path) -> None:
    made = flaky._v2(0.5, tmp_path)
    folder = tmp_path / "nodedevice-flaky"
    quota, period = map(int, (folder / "cpu.max").read_text().split())
    assert quota / period == 0.5 * (os.cpu_count() or 1)
    made.set_frozen(True)
    assert (folder / "cgroup.freeze").read_text() == "1"


def test_a_machine_without_the_controllers_is_reported(tmp_path: Path) -> None:
    with pytest.raises(flaky.NotHereError, match="the cgroup controller freezer is not mounted at"):
        flaky._v1(0.5, tmp_path)


@pytest.mark.root
def test_what_is_frozen_does_nothing_and_the_end_removes_it() -> None:
    try:
        with flaky.stall(0.5) as cgroup:
            process = subprocess.Popen(cgroup.command([sys.executable, "-c", "while True: pass"]))
            while not cgroup.processes():
                pass
            cgroup.set_frozen(True)
            frozen = [_ticks(process) for _ in range(2000)]
            assert len(set(frozen)) == 1
            cgroup.set_frozen(False)
            while _ticks(process) == frozen[0]:
                pass
    except flaky.NotHereError as exc:
        pytest.skip(str(exc))
    assert process.wait() == -9
    assert not any(folder.exists() for folder in cgroup.folders)


def _ticks(process: subprocess.Popen[bytes]) -> int:
    """CPU time in user mode."""
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.root
def test_the_status_is_the_commands() -> None:
    try:
        assert flaky.run_stalling([sys.executable, "-c", "raise SystemExit(7)"], 0.5) == (7, 0)
    except flaky.NotHereError as exc:
        pytest.skip(str(exc))
