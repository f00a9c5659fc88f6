"""Memory is what a container is charged for and cannot lose, by its cgroup or else by the process."""

import os
from pathlib import Path

import pytest

from hack.bench.memory import charged_mib

_MIB = 2**20
_V2 = {
    "anon": 30 * _MIB,
    "file": 900 * _MIB,
    "kernel": 5 * _MIB,
    "shmem": 2 * _MIB,
    "slab_reclaimable": _MIB,
    "sock": _MIB,
}
_V1 = {"cache": 900 * _MIB, "rss": 30 * _MIB, "shmem": 2 * _MIB, "unevictable": 0}


def _machine(root: Path, line: str, folder: str, stat: dict[str, int], procs: str = "7\n") -> Path:
    process, cgroup = root / "proc/7", root / folder
    process.mkdir(parents=True)
    cgroup.mkdir(parents=True)
    (process / "cgroup").write_text(f"1:cpu:/other\n{line}\n")
    (process / "smaps_rollup").write_text(
        "55ef-7ffd ---p 00000000 00:00 0    [rollup]\nRss:   61440 kB\nAnonymous:   20480 kB\nPss_Shmem:   1024 kB\n"
    )
    (process / "status").write_text("Name:\tagent\nVmRSS:\t61440 kB\nVmPTE:\t512 kB\n")
    (cgroup / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in stat.items()))
    (cgroup / "memory.kmem.usage_in_bytes").write_text(f"{4 * _MIB}\n")
    (cgroup / "cgroup.procs").write_text(procs)
    return root


def test_of_a_cgroup_of_its_own(tmp_path: Path) -> None:
    v2 = _machine(tmp_path / "2", "0::/pod/agent", "sys/fs/cgroup/pod/agent", _V2)
    v1 = _machine(tmp_path / "1", "4:memory:/pod/agent", "sys/fs/cgroup/memory/pod/agent", _V1)
    assert (charged_mib(7, v2), charged_mib(7, v1)) == (37, 36)


@pytest.mark.parametrize(("line", "procs"), [("0::/pod/agent", "7\n8\n"), ("0::/elsewhere", "7\n"), ("0::/", "7\n")])
def test_of_a_process_that_shares_its_cgroup_or_has_none(line: str, procs: str, tmp_path: Path) -> None:
    root = _machine(tmp_path, line, "sys/fs/cgroup/pod/agent", _V2, procs)
    assert charged_mib(7, root) == 21.5


def test_of_this_process() -> None:
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    assert 1 < charged_mib(os.getpid()) < int(resident.split()[1]) / 1024
