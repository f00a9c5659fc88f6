"""NVML as a test states it: what each function of pynvml answers, in this process and without a library.

    nvml = NvmlAnswers(monkeypatch)
    nvml.answers["nvmlDeviceGetUUID", "h0"] = "GPU-a"
    nvml.answers["nvmlDeviceGetName", "h0"] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

What has no answer is not supported, as of a function that is called with other arguments. The fake NVML library (hack/fake_nvml)
is a whole machine, for processes that load it; this is for one function at a time, and for answers that no machine gives.
"""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

# of the binding itself: texts of errors
_OWN = ("nvmlErrorString", "nvmlExceptionClass", "nvmlStructToFriendlyObject", "nvmlFriendlyObjectToStruct")
_FUNCTIONS = [
    name
    for name, value in vars(pynvml).items()
    if name.startswith("nvml") and callable(value) and not isinstance(value, type) and name not in _OWN
]


class NvmlAnswers:
    """answers: by the function and its arguments, else by the function alone. An exception is raised, a function called.

    calls: all of them, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str | tuple[Any, ...], Any] = {}
        self.calls: list[tuple[Any, ...]] = []
        for name in _FUNCTIONS:
            monkeypatch.setattr(pynvml, name, self._function(name))

    def count(self, name: str) -> int:
        """How often it was called."""
        return [call[0] for call in self.calls].count(name)

    def _function(self, name: str) -> Callable[..., Any]:
        def answered(*arguments: Any) -> Any:
            call = (name, *map(_plain, arguments))
            self.calls.append(call)
            answer = self.answers[call] if call in self.answers else self.answers.get(name, _NOT_SUPPORTED)
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        answered.__name__ = name
        return answered


def _plain(argument: Any) -> Any:
    """By value: a list as a tuple, a pointer as its address."""
    if isinstance(argument, ctypes.c_void_p):
        return argument.value
    return tuple(argument) if isinstance(argument, list) else argument


_NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


# what is asked of a GPU whose handle is h0
BUS = "0000:1b:00.0"
NOT_TEXT = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
UNKNOWN, LOST, BROKEN, RESET_REQUIRED, WITHOUT = (
    pynvml.NVMLError(number)
    for number in (
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
)
ECC = ("nvmlDeviceGetTotalEccErrors", "h0", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
ACTION = ("nvmlDeviceGetFieldValues", "h0", (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,))
ENERGY = ("nvmlDeviceGetTotalEnergyConsumption", "h0")
MIG_MODE = ("nvmlDeviceGetMigMode", "h0")
ROWS = ("nvmlDeviceGetRemappedRows", "h0")
PAGES = ("nvmlDeviceGetRetiredPagesPendingStatus", "h0")
UUID = ("nvmlDeviceGetUUID", "h0")
# all that a healthy GPU answers
GOOD: dict[str | tuple[Any, ...], Any] = {
    ("nvmlDeviceGetHandleByIndex", 2): "h0",
    UUID: "GPU-a",
    ("nvmlDeviceGetName", "h0"): "NVIDIA T4",
    ("nvmlDeviceGetPciInfo", "h0"): SimpleNamespace(busId="00000000:1B:00.0"),
    ("nvmlDeviceGetMinorNumber", "h0"): 5,
    ("nvmlDeviceGetMemoryInfo", "h0", pynvml.nvmlMemory_v2): SimpleNamespace(total=1000, reserved=100),
}
