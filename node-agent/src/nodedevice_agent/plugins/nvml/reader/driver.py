"""NVIDIA's driver through NVML, as far as this plugin needs it: pynvml's calls in, values out.

Runs in the reader's process alone, and every call may hang. What a GPU or an older driver does not support is left out and noted
for that GPU; a GPU that is lost is a reading; only a driver that does not work at all is an error.
Source: NVML API reference; pynvml of the distribution nvidia-ml-py.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from nodedevice_agent.plugins.nvml.gpu import Gpu, is_uuid, sysfs_bus_id
from nodedevice_agent.plugins.nvml.health.health import RESET, Reading
from nodedevice_agent.plugins.nvml.links import Ancestor
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


_WITHOUT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
_BROKEN = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
# what a GPU that does not support it is told to lack
_FEATURES = {
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetTotalEnergyConsumption": "energy",
    "nvmlDeviceGetTotalEccErrors": "ecc",
    "nvmlDeviceGetFieldValues": "recoveryAction",
}
MAX_LINKS = pynvml.NVML_NVLINK_MAX_LINKS
SWITCH = "switch"
_SWITCH_TYPE = 2
_NUMA_WORDS = 16


class GpuLost(Exception):
    """The GPU no longer answers."""


class NeedsReset(Exception):
    """The GPU answers nothing else until it is reset."""


class GpuMute(Exception):
    """The GPU is there and does not tell its UUID; the text says why."""


@dataclass(slots=True)
class Handle:
    """A GPU as NVML is asked about it.

    calling: the function under way, to be named when it hangs. is_stale: it has another UUID than when it was found.
    """

    nvml: Any
    gpu: Gpu
    calling: str = ""
    is_stale: bool = False


class Driver:
    """NVML, open. calling: the function under way, to be named when it hangs."""

    def __init__(self, host_root: str) -> None:
        self._sysfs = Path(host_root) / "sys/bus/pci/devices"
        # UUID and feature
        self._not_supported: set[tuple[str, str]] = set()
        self._not_again: set[tuple[str, str]] = set()
        self.calling = ""

    def open(self) -> str:
        """Load the library and start it. Returns the driver's version, "" where it does not tell. Raises DriverProblem."""
        self.calling = "nvmlInit"
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise problem_of(error) from error
        self.calling = "nvmlSystemGetDriverVersion"
        try:
            return _text(pynvml.nvmlSystemGetDriverVersion())
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""

    def count(self) -> int:
        """How many GPUs the driver lists. Raises DriverProblem."""
        self.calling = "nvmlDeviceGetCount"
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise problem_of(error) from error

    def describe(self, index: int) -> Handle:
        """Raises GpuLost, and GpuMute when this GPU does not tell its UUID for another reason."""
        self.calling = "nvmlDeviceGetHandleByIndex"
        try:
            handle = Handle(pynvml.nvmlDeviceGetHandleByIndex(index), Gpu(""))
            self.calling = "nvmlDeviceGetUUID"
            uuid = _uuid_of(handle)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                raise GpuLost from error
            raise GpuMute(words_of(error)) from error
        handle.gpu = Gpu(uuid)
        pci = self._told(handle, pynvml.nvmlDeviceGetPciInfo)
        bus_id = _bus_id(pci)
        memory = self._told(handle, pynvml.nvmlDeviceGetMemoryInfo)
        minor = self._told(handle, pynvml.nvmlDeviceGetMinorNumber)
        handle.gpu = Gpu(
            uuid,
            model=_text(self._told(handle, pynvml.nvmlDeviceGetName) or ""),
            memory_bytes=int(memory.total) if memory is not None else None,
            pci_bus_id=bus_id,
            numa_node=self._numa_node(handle, bus_id),
            minor=int(minor) if minor is not None else None,
        )
        return handle

    def link_end(self, handle: Handle, link: int, uuid_by_bus_id: Mapping[str, str]) -> str:
        """Where this NVLink leads: the UUID of a GPU, SWITCH, or "" for nowhere that matters."""
        if self._told(handle, pynvml.nvmlDeviceGetNvLinkState, link) != pynvml.NVML_FEATURE_ENABLED:
            return ""
        remote = self._told(handle, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, link)
        peer = uuid_by_bus_id.get(_bus_id(remote))
        if peer is not None and peer != handle.gpu.uuid:
            return peer
        # drivers from before that call know links to GPUs and to switches only
        kind = self._told(handle, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, link)
        return SWITCH if kind in (_SWITCH_TYPE, None) else ""

    def ancestor(self, one: Handle, other: Handle) -> Ancestor | None:
        """What the PCI paths of two GPUs have in common."""
        level = self._told(one, pynvml.nvmlDeviceGetTopologyCommonAncestor, other.nvml)
        return Ancestor(level) if level in set(Ancestor) else None

    def reading(self, handle: Handle) -> Reading:
        """Raises DriverProblem when it is the driver itself that does not work."""
        try:
            if self._uuid(handle) != handle.gpu.uuid:
                handle.is_stale = True
                # nobody can use what has another name by now
                return Reading(is_lost=True)
            energy = self._ask(handle, pynvml.nvmlDeviceGetTotalEnergyConsumption)
            ecc = self._ask(
                handle,
                pynvml.nvmlDeviceGetTotalEccErrors,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
            return Reading(energy_mj=energy, ecc_uncorrected=ecc, recovery_action=self._recovery_action(handle))
        except GpuMute as error:
            return Reading(failure=str(error))
        except GpuLost:
            return Reading(is_lost=True)
        except NeedsReset:
            return Reading(recovery_action=RESET)

    def not_supported(self, uuid: str) -> list[str]:
        """What this GPU was asked for in vain so far, sorted."""
        # a copy: a call that hung may come back in its thread just now
        return sorted(feature for of, feature in list(self._not_supported) if of == uuid)

    def _uuid(self, handle: Handle) -> str:
        """As it is now: some resets change it. Raises GpuLost, NeedsReset, GpuMute and DriverProblem."""
        handle.calling = self.calling = "nvmlDeviceGetUUID"
        try:
            return _uuid_of(handle)
        except pynvml.NVMLError as error:
            _raise_grave(error)
            raise GpuMute(words_of(error)) from error
        finally:
            handle.calling = ""

    def _recovery_action(self, handle: Handle) -> int | None:
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = self._ask(handle, pynvml.nvmlDeviceGetFieldValues, [field])
        if values is None:
            return None
        if values[0].nvmlReturn != pynvml.NVML_SUCCESS:
            if values[0].nvmlReturn in _WITHOUT:
                self._note(handle, "nvmlDeviceGetFieldValues")
            return None
        return int(values[0].value.uiVal)

    def _numa_node(self, handle: Handle, bus_id: str) -> int | None:
        """From sysfs, which says -1 on machines with one node; else from the driver."""
        try:
            node = int((self._sysfs / (bus_id or "-") / "numa_node").read_text(encoding="ascii"))
        except (OSError, ValueError):
            words = self._told(handle, pynvml.nvmlDeviceGetMemoryAffinity, _NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
            return _first_bit(words) if words is not None else None
        return node if node >= 0 else None

    def _told(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """As _ask; None as well from a GPU that is lost or has to be reset, which the next reading tells."""
        try:
            return self._ask(handle, function, *arguments)
        except (GpuLost, NeedsReset):
            return None

    def _ask(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """None for what this GPU or driver does not have. Raises GpuLost, NeedsReset and DriverProblem."""
        name = function.__name__
        if (handle.gpu.uuid, name) in self._not_again:
            return None
        handle.calling = self.calling = name
        try:
            return function(handle.nvml, *arguments)
        except pynvml.NVMLError as error:
            _raise_grave(error)
            if error.value in _WITHOUT:
                self._note(handle, name)
                # but not for what fails for one link or one other GPU only
                if len(arguments) == 0:
                    self._not_again.add((handle.gpu.uuid, name))
            return None
        except UnicodeDecodeError:
            # a text that is none, from firmware that is damaged
            return None
        finally:
            handle.calling = ""

    def _note(self, handle: Handle, name: str) -> None:
        """It does not support this function."""
        if name in _FEATURES:
            self._not_supported.add((handle.gpu.uuid, _FEATURES[name]))


def _raise_grave(error: pynvml.NVMLError) -> None:
    """What says more than that this call has no answer. Raises GpuLost, NeedsReset and DriverProblem."""
    if error.value in _LOST:
        raise GpuLost from error
    if error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
        raise NeedsReset from error
    if error.value in _BROKEN:
        raise problem_of(error) from error


def _uuid_of(handle: Handle) -> str:
    """Raises GpuMute for one that cannot be used, and NVMLError."""
    try:
        uuid = _text(pynvml.nvmlDeviceGetUUID(handle.nvml))
    except UnicodeDecodeError as error:
        raise GpuMute("its UUID is not text") from error
    if not is_uuid(uuid):
        raise GpuMute(f"its UUID is {uuid[:128]!r}")
    return uuid


_WORD_BITS = 64


def _text(value: Any) -> str:
    """Older bindings answer bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bus_id(pci_info: Any) -> str:
    """As sysfs spells it; empty where there is none to be had. None is an answer that did not come."""
    try:
        # the binding decodes when it is read
        return sysfs_bus_id(_text(pci_info.busId)) if pci_info is not None else ""
    except UnicodeDecodeError:
        return ""


def _first_bit(words: Any) -> int | None:
    """The lowest that is set in a mask of several words."""
    return next(_bits(words), None)


def _bits(words: Any) -> Iterator[int]:
    return (
        index * _WORD_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if int(word) >> bit & 1
    )
