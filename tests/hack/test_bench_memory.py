"""Memory that a container's cgroup is charged for, without what the kernel can reclaim."""

from pathlib import Path

import pytest

from hack.bench.memory import charged_mib

_V1 = {"cache": 900, "rss": 30, "shmem": 2, "unevictable": 0}
_V2 = {"anon": 30, "file": 900, "kernel": 5, "shmem": 2, "slab_reclaimable": 1, "sock": 1}


@pytest.mark.parametrize(
    ("line", "mount", "stat", "mib"), [("4:memory:/agent", "memory/", _V1, 36), ("0::/agent", "", _V2, 37)]
)
def test_a_process_with_its_own_cgroup(tmp_path: Path, line: str, mount: str, stat: dict[str, int], mib: int) -> None:
    process, cgroup = tmp_path / "proc/7", tmp_path / f"sys/fs/cgroup/{mount}agent"
    for folder in (process, cgroup):
        folder.mkdir(parents=True)
    (process / "cgroup").write_text(f"1:cpu:/other\n{line}\n")
    (cgroup / "memory.stat").write_text("".join(f"{name} {value << 20}\n" for name, value in stat.items()))
    (cgroup / "memory.kmem.usage_in_bytes").write_text(f"{4 << 20}\n")
    (cgroup / "cgroup.procs").write_text("7\n")
    assert charged_mib(7, tmp_path) == mib
