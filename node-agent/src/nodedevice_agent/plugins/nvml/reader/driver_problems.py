"""Why a driver cannot be read, in words for whoever has to mend it. One table, by NVML's error codes."""

import pynvml

from nodedevice_agent.plugins.nvml.reader.messages import Problem


class DriverProblem(Exception):
    """NVML failed as a whole. problem: what is told of it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


NO_LIBRARY = "NoDriverLibrary"
NOT_LOADED = "DriverNotLoaded"
NO_GPU = "NoGpu"
MISMATCH = "DriverMismatch"
TOO_OLD = "DriverTooOld"
FAILED = "DriverFailed"
HANGS = "DriverHangs"

_PROBLEMS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Problem(
        NO_LIBRARY,
        "libnvidia-ml.so.1 is not found: install the NVIDIA driver, or name the library's directory (nvml.libraryDir)",
        is_absent=True,
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Problem(
        NOT_LOADED, "the NVIDIA kernel driver is not loaded: modprobe nvidia", is_absent=True
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Problem(
        MISMATCH,
        "the NVIDIA library and the loaded kernel driver are of different versions: reboot, or reload the driver",
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Problem(
        TOO_OLD, "the NVIDIA driver is too old to be read (NVML v2 is missing): install a newer one"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: Problem(
        FAILED, "the NVIDIA driver refuses this process: it needs access to /dev/nvidiactl and /dev/nvidia*"
    ),
}


def problem_of(error: pynvml.NVMLError) -> DriverProblem:
    """The table's words, or NVML's own."""
    known = _PROBLEMS.get(error.value)
    return DriverProblem(known or Problem(FAILED, f"the NVIDIA driver cannot be read: {error}"))


def words_of(error: pynvml.NVMLError) -> str:
    """Of one GPU's trouble: the table's words, or NVML's own."""
    known = _PROBLEMS.get(error.value)
    return known.message if known is not None else str(error)


def no_gpu() -> Problem:
    return Problem(NO_GPU, "the NVIDIA driver lists no GPU", is_absent=True)


def hangs(call: str) -> Problem:
    return Problem(HANGS, f"the NVIDIA driver does not answer ({call} does not come back): look at the kernel log")
