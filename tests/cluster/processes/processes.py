"""Starts, watches and ends processes of the control plane, and leaves none behind.

Independent of Kubernetes. Each process logs to a file of its own, and is in a session of its own (so that Ctrl-C
reaches only the starter, which then ends them in order). The kernel ends it with its starter.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.cluster.errors import ComponentError

_HERE = Path(__file__).parent
_TAIL_LINES = 20
_POLL_SECONDS = 0.05

# The kernel's parent-death signal follows the *thread* that forked, and tests start servers from short-lived threads. This
# one thread forks for all of them and ends with the interpreter.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")


class Fork:
    """A process that Ctrl-C cannot lose while it starts: the forking thread, which is never interrupted, keeps a
    reference.
    """

    def __init__(self) -> None:
        self._is_being_made = False
        self._popen: subprocess.Popen[Any] | None = None

    def make(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """options: of subprocess.Popen. Raises OSError. If interrupted, the process starts nevertheless."""
        self._is_being_made = True
        try:
            return _starter.submit(self._make, command, options).result()
        finally:
            # files that it inherits, such as a log, must stay open until it has started
            self.made()

    def made(self) -> "subprocess.Popen[Any] | None":
        """None without a process."""
        if self._is_being_made:
            # that thread handles one task after the other
            _starter.submit(int).result()
        return self._popen

    def _make(self, command: Sequence[str], options: Mapping[str, Any]) -> "subprocess.Popen[Any]":
        try:
            self._popen = subprocess.Popen(command, **options)
        finally:
            self._is_being_made = False
        return self._popen


class Process:
    """One program with its log file. `start` may be called again after it ended.

    outlives_us: it ends by itself when this process is gone, and is not killed then.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, *, outlives_us: bool = False) -> None:
        self.name = name
        self.log = log
        self._command = list(command) if outlives_us else tied_to_us(command)
        self._fork = Fork()

    @property
    def _popen(self) -> "subprocess.Popen[bytes] | None":
        return self._fork.made()

    @property
    def pid(self) -> int | None:
        """Process ID while it runs; None before its start and after its end."""
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else None

    def start(self) -> None:
        """Start the program, its output appended to the log. Raises ComponentError when it cannot be started."""
        self._fork = Fork()
        try:
            with self.log.open("ab") as log:
                self._fork.make(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as exc:
            raise ComponentError(self.name, f"could not be started ({exc})", self.log, "") from exc

    def verify_alive(self) -> None:
        """Raise ComponentError, with the tail of the log, when the process has ended by itself."""
        if self._popen is not None and self._popen.poll() is not None:
            raise self.failure(f"ended with status {self._popen.returncode}")

    def wait_ready(self, is_ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Poll `is_ready` until it returns True.

        Raises ComponentError as soon as the process ends, or if it is not ready within timeout_seconds.
        """
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            self.verify_alive()
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {timeout_seconds:.0f} s")
            self._pause(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill the process. Does nothing if already ended.

        Also works after an interrupted `start`.
        """
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._fork = Fork()

    def stop(self, timeout_seconds: float) -> int:
        """Ask the process to end (SIGTERM) and wait. Returns its exit status. Raises ComponentError if it stays."""
        assert self._popen is not None
        self._popen.terminate()
        try:
            status = self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired as exc:
            raise self.failure(f"did not end within {timeout_seconds:.0f} s of SIGTERM") from exc
        self._fork = Fork()
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raises ComponentError when it has ended."""
        pid = self.pid
        if pid is None:
            raise self.failure("is not running")
        os.kill(pid, number)

    def failure(self, why: str) -> ComponentError:
        return ComponentError(self.name, why, self.log, tail(self.log))

    def _pause(self, seconds: float) -> None:
        """Wait, but no longer than the process lives."""
        assert self._popen is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)


@contextlib.contextmanager
def removed_at_the_end(folder: Path, first: Sequence[str] = ()) -> Iterator[None]:
    """Remove `folder` when the block ends, and also when this process is killed inside it.

    first: a command to run before, for cleanup elsewhere.
    """
    script = str(_HERE / "folder_janitor.py")
    command = [sys.executable, "-I", "-S", script, str(os.getpid()), str(folder), *first]
    janitor = Process("janitor", command, Path(os.devnull), outlives_us=True)
    try:
        janitor.start()
        yield
    finally:
        janitor.kill()
        if first:
            subprocess.run(first, check=False, stdin=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(command: Sequence[str], **options: Any) -> "Iterator[subprocess.Popen[Any]]":
    """A process and its children, killed at the end of the block if still running; Ctrl-C does not reach them.

    options: of subprocess.Popen. Raises OSError.
    """
    fork = Fork()
    try:
        yield fork.make(tied_to_us(command), process_group=0, **options)
    finally:
        process = fork.made()
        if process is not None and process.returncode is None:
            # it received the Ctrl-C before it led a group of its own, and has ended
            with process, contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_alive(process: psutil.Process) -> bool:
    """Not a process that has ended, and that the system has not removed from its list yet."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log; empty without a log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Ports of 127.0.0.1, reserved for the length of the block, also while none of our servers listens there.

    A socket stays bound to each: neither another program nor the kernel, for an outgoing connection, can take the
    port while its server is stopped for a test. The socket is bound exclusively at first, and marked reusable only
    then. So no other program can have it, but a server that binds with SO_REUSEADDR, as Go's do, can.
    """
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for holder in sockets:
            holder.bind(("127.0.0.1", 0))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield [holder.getsockname()[1] for holder in sockets]


def tied_to_us(command: Sequence[str]) -> list[str]:
    """A command that runs `command`, and is killed when this process, or the starting thread, ends."""
    return [sys.executable, "-I", "-S", str(_HERE / "die_with_starter.py"), str(os.getpid()), *command]
