"""A machine within this one: what runs in it, and that it can be switched off."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.node.checks import why_not_here
from hack.cluster.node.machine import Machine
from hack.cluster.waiting import wait_until

# namespaces, mounts and cgroups of its own take root
pytestmark = pytest.mark.skipif(bool(why_not_here()), reason=why_not_here())

_ROOT = Path(__file__).parents[3]
_PRINT_BOOT_ID = "cat /proc/sys/kernel/random/boot_id > /run/id.new; mv /run/id.new /run/id"
# what is started is an orphan at once, as a container's shim is
_ORPHAN = ["/bin/sh", "-c", "(sleep 1000 & echo $! > /run/orphan); exec sleep 1000"]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "m")
    made.boot()
    yield made
    made.power_off()


def test_folders_of_its_own(machine: Machine, tmp_path: Path) -> None:
    program = machine.process(
        "writer", ["/bin/sh", "-c", "echo here > /var/lib/kept; echo here > /run/lost"], tmp_path / "log"
    )
    program.start()
    wait_until(machine.outside("/run/lost").exists, "the program has written")
    assert machine.outside("/var/lib/kept").read_text() == "here\n"
    assert not Path("/var/lib/kept").exists()
    machine.power_off()
    assert machine.outside("/var/lib/kept").exists()
    assert not machine.outside("/run/lost").exists()


def test_another_boot_id_after_each_start(machine: Machine, tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        program = machine.process("reader", ["/bin/sh", "-c", _PRINT_BOOT_ID], tmp_path / "log")
        program.start()
        wait_until(machine.outside("/run/id").exists, "the program has read it")
        seen.append(machine.outside("/run/id").read_text().strip())
        assert seen[-1] == machine.boot_id
        machine.power_off()
        machine.boot()
    assert seen[0] != seen[1]


def test_switched_off_with_every_orphan(machine: Machine, tmp_path: Path) -> None:
    orphan = _start_orphan(machine, tmp_path)
    machine.power_off()
    assert not Path(f"/proc/{orphan}").exists()


def test_signals_reach_the_program_itself(machine: Machine, tmp_path: Path) -> None:
    program = machine.process("sleeper", ["/bin/sleep", "1000"], tmp_path / "log")
    program.start()
    pid = program.pid
    assert pid is not None
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the program is itself")
    program.signal(signal.SIGSTOP)
    wait_until(lambda: _state(pid) == "T", "the program is stopped")
    program.kill()
    assert program.pid is None
    assert not Path(f"/proc/{pid}").exists()


def test_killed_with_its_starter(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, signal; from hack.cluster.node.machine import Machine; m = Machine(pathlib.Path(sys.argv[1]));"
        f"m.boot(); m.process('orphan', {_ORPHAN!r}, pathlib.Path(sys.argv[1]) / 'log').start(); signal.pause()"
    )
    starter = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "m")], cwd=_ROOT)
    orphan = tmp_path / "m" / "run" / "orphan"
    wait_until(lambda: orphan.exists() and bool(orphan.read_text()), "the orphan is there")
    init = int((tmp_path / "m" / "init.pid").read_text())
    starter.kill()
    starter.wait()
    wait_until(lambda: not Path(f"/proc/{init}").exists() or _state(init) == "Z", "process 1 is gone, and with it all")


def _start_orphan(machine: Machine, tmp_path: Path) -> int:
    """Process ID, as seen from here, of a process whose parent has ended."""
    machine.process("parent", _ORPHAN, tmp_path / "log").start()
    file = machine.outside("/run/orphan")
    wait_until(lambda: file.exists() and bool(file.read_text().strip()), "the orphan is there")
    inside = file.read_text().strip()
    namespace = _namespace(int((tmp_path / "m" / "init.pid").read_text()))
    (orphan,) = (pid for pid in _processes() if _inside(pid) == inside and _namespace(pid) == namespace)
    return orphan


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _inside(pid: int) -> str:
    """Its process ID in its own PID namespace; "" when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next(line for line in lines if line.startswith("NSpid:")).split()[-1]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
