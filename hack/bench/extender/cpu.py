"""CPU time of the programs that a benchmark runs, from the kernel."""

import contextlib
from pathlib import Path
from typing import Final

import psutil

API_SERVER: Final = "apiserver"
ETCD: Final = "etcd"
SCHEDULER: Final = "scheduler"
EXTENDER: Final = "extender"
PROGRAMS: Final = (API_SERVER, ETCD, SCHEDULER, EXTENDER)
_BY_COMMAND: Final = {"kube-apiserver": API_SERVER, "etcd": ETCD, "kube-scheduler": SCHEDULER}
_NANOSECONDS: Final = 1e9


def by_program() -> dict[str, float]:
    """CPU seconds of this process's running children, by program. All other children belong to the extender."""
    found = dict.fromkeys(PROGRAMS, 0.0)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            found[_BY_COMMAND.get(child.name(), EXTENDER)] += times.user + times.system
    return found


def seconds(pid: int) -> float:
    """CPU seconds of a process's running threads. Exact to the microsecond: cpu_times() counts ticks of 10 ms."""
    schedules = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(schedule.read_text().split()[0]) for schedule in schedules) / _NANOSECONDS
