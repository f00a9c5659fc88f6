"""Labels objects that we create in a user's cluster, so that they are recognised after their creator was killed.

The label's value names a process of a machine, as `demo.MACHINE.PID.STARTED`. Only that machine can know whether the
process still runs, and only until it reboots.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, Self

LABEL: Final = "test.nodedevice.io/brought-by"
_VALUE: Final = re.compile(r"demo\.([0-9a-f]{12})\.([1-9][0-9]*)\.([0-9]+)")
# in /proc/PID/stat, behind the name: the process's start in clock ticks since the boot
_STARTED: Final = 19


class Holder(Enum):
    """The state of the process that a mark names."""

    RUNS = auto()
    HAS_ENDED = auto()
    IS_ELSEWHERE = auto()


@dataclass(frozen=True, order=True)
class Mark:
    """machine: this boot of this machine, and its process IDs' namespace. started: distinguishes processes of one ID."""

    machine: str
    pid: int
    started: int

    @classmethod
    def own(cls) -> Self:
        """The mark of this process."""
        started = _started(os.getpid())
        assert started is not None
        return cls(_machine(), os.getpid(), started)

    @classmethod
    def parse(cls, value: str) -> Self | None:
        """None if the value does not have the form of a Mark."""
        found = _VALUE.fullmatch(value)
        return cls(found[1], int(found[2]), int(found[3])) if found else None

    def holder(self) -> Holder:
        if self.machine != _machine():
            return Holder.IS_ELSEWHERE
        return Holder.RUNS if _started(self.pid) == self.started else Holder.HAS_ENDED

    def __str__(self) -> str:
        return f"demo.{self.machine}.{self.pid}.{self.started}"


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    processes = Path("/proc/self/ns/pid").readlink()
    return hashlib.sha256(f"{boot} {processes}".encode()).hexdigest()[:12]


def _started(pid: int) -> int | None:
    """None if no such process runs; a zombie counts as ended."""
    try:
        behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if behind_name[0] in "ZX" else int(behind_name[_STARTED])
