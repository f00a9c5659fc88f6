"""strace on a running program: which calls it makes, and one of them that fails.

A program under strace runs on when strace ends: it detaches at SIGTERM, and the kernel detaches it at SIGKILL.
"""

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack.cluster.waiting import wait_until
from tests.robustness.faults.cases import Case

_HANGS_AFTER_SECONDS: Final = 60.0
# a line of `strace -c`: share, seconds, each, count, errors if any, name
_COUNTED: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+\d+\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)


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
        """Calls that were made to fail so far."""
        return [line for line in self.text.splitlines() if line.endswith("(INJECTED)")]

    @property
    def counted(self) -> set[str]:
        """Names of the calls that were made, once it has ended."""
        return set(_COUNTED.findall(self.text)) - {"total"}


@contextlib.contextmanager
def traced(strace: Path, pid: int, folder: Path, name: str, *options: str) -> Iterator[Tracing]:
    """While the block runs; it is attached when the block begins, and detached afterwards."""
    output, messages = folder / f"{name}.calls", folder / f"{name}.messages"
    output.touch()
    with messages.open("wb") as to:
        process = subprocess.Popen(
            [strace, "--follow-forks", f"--attach={pid}", f"--output={output}", *options],
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


def counting(strace: Path, pid: int, folder: Path) -> contextlib.AbstractContextManager[Tracing]:
    """Which calls it makes."""
    return traced(strace, pid, folder, "counted", "--summary-only")


def failing(strace: Path, pid: int, folder: Path, case: Case) -> contextlib.AbstractContextManager[Tracing]:
    """The call of the case fails."""
    when = "" if case.lasts else ":when=1"
    options = (f"--trace={case.call}", f"--inject={case.call}:error={case.error}{when}", "--decode-fds=path")
    return traced(strace, pid, folder, str(case).replace(" ", "-"), *options)
