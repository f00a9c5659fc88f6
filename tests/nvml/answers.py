"""Processes that see a machine, a GPU of theirs, and short names of the errors that NVML returns."""

from collections.abc import Callable

import pynvml

from hack.fake_nvml.library import FakeNvml
from tests.nvml.nvml_process import NvmlProcess

# starts a process that sees this machine
Start = Callable[[FakeNvml], NvmlProcess]
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
INVALID = pynvml.NVML_ERROR_INVALID_ARGUMENT
TIMEOUT = pynvml.NVML_ERROR_TIMEOUT
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN


def uuid_of(nvml: NvmlProcess, gpu: dict[str, str]) -> str:
    uuid = nvml.call("nvmlDeviceGetUUID", gpu)
    assert isinstance(uuid, str)
    return uuid
