"""NRI's own library as a container runtime: a process of main.go, spoken to in JSON lines; and a plugin's process beside it."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

# by the name of its program
RELEASES: Final = {"0.12.3": "nri-library-0.12.3", "0.12.5": "nri-library-0.12.5"}
_ROOT = Path(__file__).parents[2]


class Created(Struct, frozen=True):
    """devices: paths of the device files that a container was created with. error: the library's; empty where it was created."""

    devices: tuple[str, ...] = ()
    error: str = ""


class Runtime:
    """program: of one release. validator: whether NRI's default validator is on. timeout: of each request, 2 s by default."""

    def __init__(self, program: Path, folder: Path, *, validator: bool, timeout: str = "2s") -> None:
        self.socket = folder / "nri.sock"
        self._own_plugins = int(validator)
        command = [str(program), "-socket", str(self.socket), "-timeout", timeout]
        command += ["-validator"] if validator else []
        with (folder / "library.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def plugin_connects(self, *, is_connected: bool = True) -> str:
        """Waits until the agent's plugin is connected, or is not any more. Returns why it could not be synchronized."""
        return self._do({"do": "plugins", "count": self._own_plugins + is_connected}).error

    def running(self, count: int, environment_bytes: int, pods: int = 1) -> None:
        """Containers that are there when a plugin connects."""
        self._do({"do": "state", "count": count, "env": environment_bytes, "pods": pods})

    def create(self, name: str, annotations: Mapping[str, str]) -> Created:
        return self._do({"do": "create", "container": name, "annotations": dict(annotations)})

    def _do(self, request: Mapping[str, Any]) -> Created:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the library's process has ended"
        response = json.loads(line)
        return Created(tuple(response["devices"] or ()), response["error"])


class Plugin:
    """where and how it fails: see plugin_process."""

    def __init__(self, socket: Path, where: str = "", how: str = "") -> None:
        arguments = [str(socket), *([where, how] if where else [])]
        command = [sys.executable, "-m", "tests.nri_library.plugin_process", *arguments]
        self._process = subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
