"""A machine to be a node: one kernel with ours, but processes and mounts of its own, that can be switched off and on again.

    machine = Machine(folder); machine.boot()
    containerd = machine.process("containerd", [...], log); containerd.start()
    machine.power_off(); machine.boot()      every process gone at once, disk kept, /run empty, another boot id

Needs root. Independent of Kubernetes. Inside, /run, /var/lib and /var/log are folders of the run. So programs can use the
paths of a real node, such as /var/lib/kubelet/device-plugins. `outside` translates such a path to one of this machine.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.processes.processes import Process

_HERE = Path(__file__).parent
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.005
# the machine's own folders, and their names outside
_OWN = {"/run": "run", "/var/run": "run", "/var/lib": "var-lib", "/var/log": "var-log"}


class Machine:
    """Folders of a machine, and the process that holds its namespaces while it is on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boot_id = ""
        self._init: Process | None = None
        self._processes: list[MachineProcess] = []
        for name in set(_OWN.values()):
            (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)

    @property
    def init_pid(self) -> int:
        """Process ID, as seen from here, of the machine's process 1."""
        return int((self.folder / "init.pid").read_text())

    def outside(self, path: str) -> Path:
        """This machine's path for a path of the machine."""
        for root, name in _OWN.items():
            if path == root or path.startswith(f"{root}/"):
                return self.folder / name / path[len(root) + 1 :]
        return Path(path)

    def boot(self) -> None:
        """Switch it on. Raises ComponentError when the kernel does not let us."""
        self.boot_id = str(uuid.uuid4())
        (self.folder / "init.pid").unlink(missing_ok=True)
        command = [sys.executable, "-I", "-S", str(_HERE / "machine_init.py"), str(self.folder), self.boot_id]
        self._init = Process("machine", command, self.folder / "machine.log")
        self._init.start()
        self._init.wait_ready((self.folder / "init.pid").exists, _READY_SECONDS)

    def power_off(self) -> None:
        """End every process in it at once, like a power failure; returns when the last has ended. Does nothing if
        already off.

        /run is lost, as on a node, where it is in memory.
        """
        if self._init is None:
            return
        ended = _pidfd(self.init_pid) if (self.folder / "init.pid").exists() else None
        self._init.kill()
        self._init = None
        if ended is not None:
            # the namespace's process 1 ends last, when all others have been reaped
            select.select([ended], [], [])
            os.close(ended)
        for process in self._processes:
            process.kill()
        shutil.rmtree(self.folder / "run")
        (self.folder / "run").mkdir(mode=0o755)

    def process(self, name: str, command: Sequence[str], log: Path) -> "MachineProcess":
        """A program that runs in the machine; start() starts it, and again after each boot."""
        made = MachineProcess(self, name, command, log)
        self._processes.append(made)
        return made

    def verify_on(self) -> None:
        """Raise ComponentError if it has ended by itself."""
        if self._init is not None:
            self._init.verify_alive()


class MachineProcess(Process):
    """A program inside a machine. Signals reach the program itself, not its starter."""

    def __init__(self, machine: Machine, name: str, command: Sequence[str], log: Path) -> None:
        super().__init__(name, command, log)
        self._machine = machine
        self._inside = list(command)

    def start(self) -> None:
        """Start it. Raises ComponentError when it cannot be started."""
        launcher = [sys.executable, "-I", "-S", str(_HERE / "enter_machine.py"), str(self._machine.init_pid)]
        self._command = [*launcher, *self._inside]
        super().start()

    @property
    def pid(self) -> int | None:
        """Process ID of the program as seen from here; None before its start and after its end."""
        deadline = time.monotonic() + _READY_SECONDS
        while (launcher := super().pid) is not None and time.monotonic() < deadline:
            if program := _only_child(launcher):
                return program
            time.sleep(_POLL_SECONDS)
        return None

    def kill(self) -> None:
        """kill -9, and wait until it has ended. Does nothing if already ended."""
        program = self.pid
        if program is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
            assert self._popen is not None
            # its starter ends after it
            self._popen.wait()
        super().kill()


def _only_child(pid: int) -> int | None:
    """The child of a process with at most one child; None without one."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def _pidfd(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None
