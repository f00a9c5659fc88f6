"""A program of the product as a process: started, stopped, its log read, its pages asked for."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0
# folder of this tree's programs
PROGRAMS = Path(sys.executable).parent
_SERVING = re.compile(r'"event": "serving(?: http)?".*"address": "([^"]+)"')


class ProductProcess:
    """Its log is JSON, in `log`. May be started again after its end; each start has a log of its own."""

    def __init__(
        self,
        program: str,
        folder: Path,
        name: str,
        flags: Mapping[str, str],
        switches: tuple[str, ...] = (),
        command: str = "run",
        environment: Mapping[str, str] | None = None,
        programs: Path = PROGRAMS,
    ) -> None:
        """environment: beside the test's own. programs: folder of the program."""
        self._folder, self._name = folder, name
        self._environment = {**os.environ, **(environment or {})}
        self._command = [str(programs / program), command, "--log-format", "json"]
        self._command += [part for flag in flags.items() for part in flag]
        self._command += switches
        self._starts = 0
        self._is_to_run = False
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"{name}-0.log"

    def start(self) -> None:
        """Start it, and wait for nothing."""
        self._starts += 1
        self._is_to_run = True
        self.log = self._folder / f"{self._name}-{self._starts}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_ended(self, timeout_seconds: float = PATIENCE_SECONDS) -> int:
        """Exit status, once it has ended. Raises TimeoutExpired."""
        assert self._process is not None
        self._is_to_run = False
        return self._process.wait(timeout_seconds)

    def kill(self) -> None:
        """kill -9; ended already: nothing happens."""
        self._is_to_run = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def lines(self, event: str = "") -> list[Json]:
        """What it logged since its start; only lines with this event, if one is given."""
        text = self.log.read_text(encoding="utf-8")
        # the last line may be incomplete
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line[:1] == "{" and line[-1:] == "\n"]
        return [line for line in found if event in ("", line["event"])]

    def found_address(self) -> str:
        """HOST:PORT where it answers over HTTP; empty until it does."""
        self.verify_running()
        match = _SERVING.search(self.log.read_text(encoding="utf-8"))
        return match[1] if match else ""

    def verify_running(self) -> None:
        """Fails where it has ended by itself."""
        assert self._process is not None
        assert not self._is_to_run or self._process.poll() is None, f"{self._name} has ended: {self.tail()}"

    def verify_no_traceback(self) -> None:
        """Of all its starts."""
        for log in self._folder.glob(f"{self._name}-*.log"):
            assert "Traceback" not in log.read_text(encoding="utf-8"), log.read_text(encoding="utf-8")

    def tail(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8").splitlines()[-20:])
