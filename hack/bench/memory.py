"""Memory of a process as its container is charged for it: anonymous memory, and kernel memory that cannot be reclaimed.

Pages of files, such as code, are left out: the kernel reclaims them under pressure, and programs share them. A
process with a cgroup of its own is measured by that. In these benchmarks processes share a cgroup. Then the same
parts are read from the process: anonymous memory, shared memory and page tables. The kernel does not count thread
stacks and socket buffers by process, so these are missing. cgroup v1 does not report how much kernel memory can be
reclaimed, so its numbers include that; they lack socket buffers.
Source: the kernel's Documentation/admin-guide/cgroup-v2.rst ("memory.stat"), cgroup-v1/memory.rst (5.2) and
filesystems/proc.rst.
"""

from pathlib import Path
from typing import Final

_MIB: Final = 2**20
# v2. shmem is not backed by a file. `kernel` includes slab_reclaimable, which the kernel can reclaim.
_OF_V2: Final = {"anon": 1, "shmem": 1, "kernel": 1, "slab_reclaimable": -1, "sock": 1}
# v1: rss is anonymous memory; kernel memory is in a separate file
_OF_V1: Final = {"rss": 1, "shmem": 1}
_OF_PROCESS: Final = {"Anonymous": 1, "Pss_Shmem": 1}


def charged_mib(pid: int, root: Path = Path("/")) -> float:
    """MiB charged for one process. root: the parent directory of proc and sys. Raises OSError if it has ended."""
    folder = _own_cgroup(pid, root)
    if folder is None:
        octets = 1024 * _total(_numbers(root / f"proc/{pid}/smaps_rollup"), _OF_PROCESS)
        return (octets + 1024 * _numbers(root / f"proc/{pid}/status")["VmPTE"]) / _MIB
    stat = _numbers(folder / "memory.stat")
    if "anon" in stat:
        return _total(stat, _OF_V2) / _MIB
    return (_total(stat, _OF_V1) + int((folder / "memory.kmem.usage_in_bytes").read_text())) / _MIB


def _own_cgroup(pid: int, root: Path) -> Path | None:
    """The process's memory cgroup, v1 or v2, if no other process is in it."""
    for line in (root / f"proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mount = {"": "sys/fs/cgroup", "memory": "sys/fs/cgroup/memory"}.get(controllers)
        folder = root / mount / path.lstrip("/") if mount is not None else None
        if folder is not None and (folder / "memory.stat").is_file():
            return folder if (folder / "cgroup.procs").read_text().split() == [str(pid)] else None
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Numbers by name, of lines such as `anon 4096` and `VmPTE: 4 kB`."""
    words = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdecimal()}


def _total(numbers: dict[str, int], parts: dict[str, int]) -> int:
    return sum(sign * numbers.get(name, 0) for name, sign in parts.items())
