"""strace on a running program: which calls it makes, and one of them that fails.

A program under strace runs on when strace ends: it detaches at SIGTERM, and the kernel detaches it at SIGKILL.
"""

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.cluster.waiting import wait_until
from tests.robustness.faults.cases import Case

_HANGS_AFTER_SECONDS: Final = 60.0
# a line: thread, and a call that begins or goes on; with the file of its descriptor, if the first argument is one
_CALL: Final = re.compile(r"^\d+ +(?:<\.\.\. )?(\w+)(?: resumed|\((?:\d+<([^>]*)>)?)", re.MULTILINE)
_UNFINISHED: Final = "<unfinished ...>"
# wakes another thread: the kernel takes it always, as it does a futex's
_EVENTS: Final = "anon_inode:[eventfd]"


class Tracing:
    """One strace, attached to all threads."""

    def __init__(self, output: Path) -> None:
        self._output = output

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    @property
    def failed(self) -> list[str]:
        """Calls that were made to fail so far, with what they were made with."""
        return list(failed_calls(self.text.splitlines()))

    @property
    def made(self) -> dict[str, set[str]]:
        """Calls that were made so far, and of each the files whose descriptors it got first."""
        found: dict[str, set[str]] = {}
        for call, file in _CALL.findall(self.text):
            found.setdefault(call, set()).update({file} - {""})
        return found


def failed_calls(lines: Iterable[str]) -> Iterator[str]:
    """A call of one thread may begin in one line and end in another."""
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.partition(" ")[0]
        if line.endswith(_UNFINISHED):
            begun[thread] = line.removesuffix(_UNFINISHED)
        elif line.endswith("(INJECTED)"):
            yield begun.pop(thread, "") + line if "resumed>" in line else line


class Strace:
    """The program strace. folder: for what it prints."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder

    def watching(self, pid: int) -> contextlib.AbstractContextManager[Tracing]:
        """Which calls that process makes while the block runs."""
        return self._traced(pid, "watched", "--decode-fds=path")

    def failing(self, pid: int, case: Case, files: Iterable[str] = ()) -> contextlib.AbstractContextManager[Tracing]:
        """The call of the case fails. files: of its descriptors, as they were watched; one that wakes threads is never refused."""
        when = "" if case.lasts else ":when=1"
        options = [f"--trace={case.call}", f"--inject={case.call}:error={case.error}{when}", "--decode-fds=path"]
        if _EVENTS in files:
            options += [f"--trace-path={file}" for file in sorted(files) if file != _EVENTS]
        return self._traced(pid, str(case).replace(" ", "-"), *options)

    @contextlib.contextmanager
    def _traced(self, pid: int, name: str, *options: str) -> Iterator[Tracing]:
        """It is attached when the block begins, and detached afterwards."""
        output, messages = self._folder / f"{name}.calls", self._folder / f"{name}.messages"
        output.touch()
        with messages.open("wb") as to:
            process = subprocess.Popen(
                [self._program, "--follow-forks", f"--attach={pid}", f"--output={output}", *options],
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=to,
            )
        try:
            wait_until(lambda: "attached" in messages.read_text() or process.poll() is not None, "strace is attached")
            assert process.poll() is None, messages.read_text()
            yield Tracing(output)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_HANGS_AFTER_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
