"""Number of cores for a build: the cores that it may run on, limited by a container's quota of CPU time."""

import os
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")


def cores(cgroups: Path = _CGROUPS) -> float:
    """At least a tenth of a core. cgroups: their mount point; in a container its own cgroup is the root there."""
    allowed = float(len(os.sched_getaffinity(0)))
    quota = _quota(cgroups)
    return max(0.1, min(allowed, quota)) if quota is not None else allowed


def _quota(cgroups: Path) -> float | None:
    """The quota in cores; None without a readable quota."""
    try:
        if (cgroups / "cgroup.controllers").exists():
            limit, period = (cgroups / "cpu.max").read_text().split()
        else:
            limit, period = ((cgroups / f"cpu/cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        found = int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return found if found > 0 else None
