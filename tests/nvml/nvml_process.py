"""The test's end of a process that calls NVML (nvml_child.py)."""

import ctypes
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

# Generous: only a test that fails waits so long.
_ANSWER_SECONDS = 120.0
_ROOT = Path(__file__).resolve().parents[2]


def real_nvml_is_here() -> bool:
    """Whether the loader finds a real NVML."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class NvmlRefusal(Exception):
    """NVML answered with an error; number: which."""

    def __init__(self, function: str, number: int) -> None:
        super().__init__(f"{function}: error {number}")
        self.number = number


class NvmlProcess:
    """A process in which functions of pynvml are called, any number at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.nvml.nvml_child"],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[str, Future[Any]]] = {}
        self._output: list[str] = []
        self._readers = [threading.Thread(target=self._read_answers), threading.Thread(target=self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> tuple[int, str]:
        """End it; returns its exit status and all that it wrote to stderr."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        status = self._process.wait(_ANSWER_SECONDS)
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()
        return status, "".join(self._output)

    def start(self, function: str, *arguments: Any, keep: str = "") -> Future[Any]:
        """Call a function of pynvml and do not wait; keep: the name under which its result can be an argument later."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        self._asked[number] = function, future
        request = {"number": number, "function": function, "arguments": arguments, "keep": keep}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return future

    def call(self, function: str, *arguments: Any, keep: str = "") -> Any:
        """Call a function and wait for what it returns. Raises NvmlRefusal."""
        return self.start(function, *arguments, keep=keep).result(_ANSWER_SECONDS)

    def error(self, function: str, *arguments: Any) -> int:
        """The number of the error that this call ends with; 0 for none."""
        try:
            self.call(function, *arguments)
        except NvmlRefusal as refusal:
            return refusal.number
        return 0

    def open(self) -> list[dict[str, str]]:
        """Initialise NVML and take a handle for each GPU: `gpu0`, `gpu1`, ... as arguments for calls."""
        self.call("nvmlInit")
        return [self.handle(index) for index in range(self.call("nvmlDeviceGetCount"))]

    def handle(self, index: int) -> dict[str, str]:
        """Take a handle for the GPU of this index."""
        self.call("nvmlDeviceGetHandleByIndex", index, keep=f"gpu{index}")
        return {"kept": f"gpu{index}"}

    def watch(self, *gpus: dict[str, str], types: int = 8, name: str = "events") -> dict[str, str]:
        """Make an event set in which these GPUs are registered; default: for Xids."""
        self.call("nvmlEventSetCreate", keep=name)
        for gpu in gpus:
            self.call("nvmlDeviceRegisterEvents", gpu, types, {"kept": name})
        return {"kept": name}

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            function, future = self._asked.pop(answer["number"])
            if "error" in answer:
                future.set_exception(NvmlRefusal(function, answer["error"]))
            else:
                future.set_result(answer["result"])
        for _, future in list(self._asked.values()):
            future.set_exception(ConnectionResetError("the process that calls NVML ended"))

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._output.append(line)
