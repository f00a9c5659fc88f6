"""Explains the trouble of the driver as a whole, from NVML's errors and from the driver's files on the node."""

import errno
import os

import pynvml

from nodedevice_agent.plugins.nvml.reader.access import CONTROL, DriverFiles
from nodedevice_agent.plugins.nvml.reader.messages import Problem
from nodedevice_agent.plugins.nvml.reasons import GpuReason

_ELSEWHERE = "install the NVIDIA driver, or name the library's directory (nvml.libraryDir)"

_PROBLEMS = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Problem(
        GpuReason.DRIVER_NOT_LOADED, "the NVIDIA kernel driver is not loaded: modprobe nvidia", is_absent=True
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Problem(
        GpuReason.DRIVER_MISMATCH,
        "the NVIDIA library and the loaded kernel driver are of different versions: reboot, or reload the driver",
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Problem(
        GpuReason.DRIVER_TOO_OLD, "the NVIDIA driver is too old to be read (NVML v2 is missing): install a newer one"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: Problem(
        GpuReason.DRIVER_FAILED, f"the NVIDIA driver denies access: this process needs {CONTROL} and /dev/nvidia*"
    ),
}
# NVML's errors if the control file is missing, or must not be opened
_OF_FILES = (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN)


class DriverProblem(Exception):
    """NVML failed as a whole. problem: the message to report."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_of(error: pynvml.NVMLError) -> DriverProblem:
    """The text of the table, or NVML's own."""
    unknown = Problem(GpuReason.DRIVER_FAILED, f"the NVIDIA driver cannot be read: {error}")
    return DriverProblem(_PROBLEMS.get(error.value, unknown))


def problem_of_start(error: pynvml.NVMLError, files: DriverFiles) -> DriverProblem:
    """The problem of nvmlInit, which hides why it could not open the control file."""
    is_absent = error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED and not files.is_loaded
    why = files.problem_with(CONTROL) if error.value in _OF_FILES and not is_absent else ""
    if why:
        return DriverProblem(Problem(GpuReason.DRIVER_FAILED, f"the NVIDIA driver cannot be opened: {why}"))
    return problem_of(error)


def problem_of_library(path: str, error: OSError) -> Problem:
    """The loader did not load the library. path: its path, or its name if the loader searches for it."""
    text = str(error)
    if text.startswith(f"{path}: cannot open shared object file: {os.strerror(errno.ENOENT)}"):
        return Problem(GpuReason.NO_DRIVER_LIBRARY, f"{path} is not found: {_ELSEWHERE}", is_absent=True)
    text = text.removeprefix(f"{path}: ")
    return Problem(
        GpuReason.DRIVER_FAILED,
        f"{path} cannot be loaded ({text}): it has to be of this machine's kind, and its libraries be there",
    )


def no_gpu(files: DriverFiles) -> Problem:
    unlisted = files.unlisted(())
    if unlisted:
        return Problem(GpuReason.DRIVER_FAILED, "; ".join(unlisted))
    return Problem(GpuReason.NO_GPU, "the NVIDIA driver lists no GPU", is_absent=True)


def text_of(error: pynvml.NVMLError) -> str:
    """For one GPU: the text of the table, or NVML's own."""
    known = _PROBLEMS.get(error.value)
    return known.message if known is not None else str(error)


def hangs(call: str) -> Problem:
    return Problem(GpuReason.DRIVER_HANGS, f"the NVIDIA driver does not respond ({call} hangs): see the kernel log")
