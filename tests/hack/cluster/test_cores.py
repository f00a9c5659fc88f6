"""How many cores a forecast counts on: not those of the whole machine where a container has a part of them."""

import os
from pathlib import Path

import pytest

from hack.cluster.build.cores import cores

_ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        pytest.param("max 100000", _ALLOWED, id="none"),
        pytest.param("50000 100000", 0.5, id="half a core"),
        pytest.param("99900000 100000", _ALLOWED, id="more than there are"),
        pytest.param("1 100000", 0.1, id="next to nothing"),
        pytest.param("0 0", _ALLOWED, id="no period"),
        pytest.param("", _ALLOWED, id="empty"),
        pytest.param("a lot", _ALLOWED, id="no number"),
    ],
)
def test_cgroup_v2(tmp_path: Path, quota: str, expected: float) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", _ALLOWED), ("50000", 0.5)], ids=["none", "half a core"])
def test_cgroup_v1(tmp_path: Path, quota: str, expected: float) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path) == expected


def test_no_cgroups(tmp_path: Path) -> None:
    assert cores(tmp_path) == _ALLOWED
