"""Runs the gate on a machine that stalls: in a cgroup with part of the CPU, frozen whole for seconds,
repeatedly.

python -m hack.ci.flaky     three runs, each with its verdict; continues with the run at which an earlier try of the same
tree ended

Needs root: a cgroup of its own, in cgroup v2 or in the v1 controllers `freezer` and `cpu`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from hack.ci.finished import Finished, tree_hash
from hack.ci.parts import ROOT

# each run: its name, and its share of this machine's CPU time
RUNS: Final = {"half-1": 0.5, "half-2": 0.5, "quarter": 0.25}
FROZEN_SECONDS: Final = 12.0
EVERY_SECONDS: Final = 120.0
_PERIOD_MICROSECONDS: Final = 100_000
_CGROUPS: Final = Path("/sys/fs/cgroup")
_NAME: Final = "nodedevice-flaky"


class NotHereError(Exception):
    """Why this machine cannot do it."""


@dataclass(frozen=True)
class Stall:
    """A cgroup whose processes can all be stopped at once. folders: one in v2, one of each controller in v1."""

    folders: tuple[Path, ...]
    freeze_file: Path
    freeze: str
    thaw: str

    def set_frozen(self, is_frozen: bool) -> None:
        self.freeze_file.write_text(self.freeze if is_frozen else self.thaw)

    def command(self, command: list[str]) -> list[str]:
        """The command that runs `command` inside."""
        enter = "; ".join(f"echo $$ >{folder}/cgroup.procs" for folder in self.folders)
        return ["/bin/sh", "-ec", f'{enter}; exec "$@"', "sh", *command]

    def processes(self) -> list[int]:
        return [int(line) for line in (self.folders[0] / "cgroup.procs").read_text().split()]


@contextlib.contextmanager
def stall(share: float, root: Path = _CGROUPS) -> Iterator[Stall]:
    """A new cgroup with this share of the machine's CPU time; all processes left in it end with it. Raises NotHereError."""
    if os.geteuid() != 0:
        raise NotHereError("a cgroup of its own needs root: run as root")
    made = _v2(share, root) if (root / "cgroup.controllers").exists() else _v1(share, root)
    try:
        yield made
    finally:
        made.set_frozen(False)
        _remove(made)


def _v1(share: float, root: Path) -> Stall:
    freezer, cpu = (root / controller / _NAME for controller in ("freezer", "cpu"))
    for folder in (freezer, cpu):
        if not folder.parent.is_dir():
            raise NotHereError(f"the cgroup controller {folder.parent.name} is not mounted at {folder.parent}")
        folder.mkdir(exist_ok=True)
    (cpu / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
    (cpu / "cpu.cfs_quota_us").write_text(str(_quota(share)))
    return Stall((freezer, cpu), freezer / "freezer.state", "FROZEN", "THAWED")


def _v2(share: float, root: Path) -> Stall:
    folder = root / _NAME
    try:
        (root / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir(exist_ok=True)
        (folder / "cpu.max").write_text(f"{_quota(share)} {_PERIOD_MICROSECONDS}")
    except OSError as exc:
        raise NotHereError(f"no cgroup with a part of the CPU can be made below {root}: {exc}") from exc
    return Stall((folder,), folder / "cgroup.freeze", "1", "0")


def _quota(share: float) -> int:
    return int(share * (os.cpu_count() or 1) * _PERIOD_MICROSECONDS)


def _remove(made: Stall) -> None:
    while left := made.processes():
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)
    for folder in made.folders:
        folder.rmdir()


def run_stalling(command: list[str], share: float) -> tuple[int, int]:
    """The command's exit status, and the number of freezes. Raises NotHereError."""
    freezes = 0
    with stall(share) as cgroup:
        process = subprocess.Popen(cgroup.command(command), cwd=ROOT)
        while True:
            try:
                return process.wait(EVERY_SECONDS - FROZEN_SECONDS), freezes
            except subprocess.TimeoutExpired:
                freezes += 1
                cgroup.set_frozen(True)
                time.sleep(FROZEN_SECONDS)
                cgroup.set_frozen(False)


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    finished = Finished(ROOT / "build" / "ci" / "flaky.json", tree_hash(ROOT))
    verdicts = {}
    for name, share in RUNS.items():
        if name in finished:
            verdicts[name] = "passed before"
            continue
        print(f"\n{name}: {share:.0%} of the CPU, frozen {FROZEN_SECONDS:.0f} s in {EVERY_SECONDS:.0f}", flush=True)
        began = time.monotonic()
        try:
            status, freezes = run_stalling([sys.executable, "-m", "hack.ci", "gate"], share)
        except NotHereError as exc:
            print(f"make flaky: {exc}", file=sys.stderr)
            return 2
        verdict = "FAILED" if status else "passed"
        verdicts[name] = f"{verdict}, {(time.monotonic() - began) / 60:.0f} min, frozen {freezes} times"
        if status == 0:
            finished.add(name)
    print("\nflaky:")
    for name, verdict in verdicts.items():
        print(f"  {name:8} {verdict}")
    return int(any("FAILED" in verdict for verdict in verdicts.values()))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
