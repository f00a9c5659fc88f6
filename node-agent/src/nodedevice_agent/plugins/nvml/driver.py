"""NVIDIA's driver through NVML, as far as this plugin needs it: pynvml's calls in, values out.

Runs in the reader's process alone, and every call may hang. What a GPU or an older driver does not support is left out and noted
by name; a GPU that is lost is a reading; only a driver that does not work at all is an error.
Source: NVML API reference; pynvml of the distribution nvidia-ml-py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from nodedevice_agent.plugins.core.nvml.gpu import Gpu, sysfs_bus_id
from nodedevice_agent.plugins.core.nvml.health import Reading
from nodedevice_agent.plugins.core.nvml.links import Ancestor, Ports
from nodedevice_agent.plugins.nvml.driver_problems import problem_of

_WITHOUT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
_BROKEN = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
# what has to be done for the GPU to be itself again; the numbers are NVML's (nvmlDeviceGpuRecoveryAction_t)
_RECOVERY_ACTIONS = {
    0: "",
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of its peer-to-peer traffic",
    4: "draining the GPU, then a reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}
_SWITCH = 2
_NUMA_WORDS = 16
_WORD_BITS = 64


class GpuLost(Exception):
    """The GPU no longer answers."""


@dataclass(slots=True)
class Handle:
    """A GPU as NVML is asked about it. calling: the function under way, to be named when it hangs."""

    nvml: Any
    gpu: Gpu
    calling: str = ""


class Driver:
    """NVML, open. goes_without: names of functions that were tried and are not supported."""

    def __init__(self, host_root: str) -> None:
        self._sysfs = Path(host_root) / "sys/bus/pci/devices"
        self.goes_without: set[str] = set()
        self._not_again: set[tuple[str, str]] = set()
        self.calling = ""

    def open(self) -> str:
        """Load the library and start it. Returns the driver's version. Raises DriverProblem."""
        self.calling = "nvmlInit"
        with _translated():
            pynvml.nvmlInit()
            self.calling = "nvmlSystemGetDriverVersion"
            return _text(pynvml.nvmlSystemGetDriverVersion())

    def count(self) -> int:
        """How many GPUs the driver lists. Raises DriverProblem."""
        self.calling = "nvmlDeviceGetCount"
        with _translated():
            return int(pynvml.nvmlDeviceGetCount())

    def describe(self, index: int) -> Handle:
        """Raises GpuLost, and DriverProblem when this GPU does not tell its UUID for another reason."""
        self.calling = "nvmlDeviceGetHandleByIndex"
        with _translated():
            handle = Handle(pynvml.nvmlDeviceGetHandleByIndex(index), Gpu(""))
            self.calling = "nvmlDeviceGetUUID"
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle.nvml))
        handle.gpu = Gpu(uuid)
        pci = self._told(handle, pynvml.nvmlDeviceGetPciInfo)
        bus_id = sysfs_bus_id(_text(pci.busId)) if pci is not None else ""
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

    def ports(self, handle: Handle, uuid_by_bus_id: dict[str, str]) -> Ports:
        """Where this GPU's NVLinks lead."""
        peers: dict[str, int] = {}
        to_switches = 0
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            state = self._told(handle, pynvml.nvmlDeviceGetNvLinkState, link)
            if state is None:
                break
            if state != pynvml.NVML_FEATURE_ENABLED:
                continue
            remote = self._told(handle, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, link)
            peer = uuid_by_bus_id.get(sysfs_bus_id(_text(remote.busId))) if remote is not None else None
            if peer is not None and peer != handle.gpu.uuid:
                peers[peer] = peers.get(peer, 0) + 1
            elif self._told(handle, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, link) in (_SWITCH, None):
                # drivers from before that call know links to GPUs and to switches only
                to_switches += 1
        return Ports(peers, to_switches)

    def ancestor(self, one: Handle, other: Handle) -> Ancestor | None:
        """What the PCI paths of two GPUs have in common."""
        level = self._told(one, pynvml.nvmlDeviceGetTopologyCommonAncestor, other.nvml)
        return Ancestor(level) if level in set(Ancestor) else None

    def uuid(self, handle: Handle) -> str:
        """As it is now: some resets change it. Empty when the GPU is lost. Raises DriverProblem."""
        return _text(self._told(handle, pynvml.nvmlDeviceGetUUID) or "")

    def reading(self, handle: Handle) -> Reading:
        """Raises DriverProblem when it is the driver itself that does not work."""
        try:
            energy = self._ask(handle, pynvml.nvmlDeviceGetTotalEnergyConsumption)
            ecc = self._ask(
                handle,
                pynvml.nvmlDeviceGetTotalEccErrors,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
            return Reading(energy_mj=energy, ecc_uncorrected=ecc, recovery_action=self._recovery_action(handle))
        except GpuLost:
            return Reading(is_lost=True)
        except _NeedsReset:
            return Reading(recovery_action=_RECOVERY_ACTIONS[1])

    def _recovery_action(self, handle: Handle) -> str | None:
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = self._ask(handle, pynvml.nvmlDeviceGetFieldValues, [field])
        if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        number = int(values[0].value.uiVal)
        return _RECOVERY_ACTIONS.get(number, f"recovery action {number}")

    def _numa_node(self, handle: Handle, bus_id: str) -> int | None:
        """From sysfs, which says -1 on machines with one node; else from the driver."""
        try:
            node = int((self._sysfs / (bus_id or "-") / "numa_node").read_text(encoding="ascii"))
        except (OSError, ValueError):
            words = self._told(handle, pynvml.nvmlDeviceGetMemoryAffinity, _NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
            return next(_bits(words), None) if words is not None else None
        return node if node >= 0 else None

    def _told(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """As _ask; None as well from a GPU that is lost or has to be reset, which the next reading tells."""
        try:
            return self._ask(handle, function, *arguments)
        except (GpuLost, _NeedsReset):
            return None

    def _ask(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """None for what this GPU or driver does not have. Raises GpuLost, _NeedsReset and DriverProblem."""
        name = function.__name__
        if (handle.gpu.uuid, name) in self._not_again:
            return None
        handle.calling = self.calling = name
        try:
            return function(handle.nvml, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                raise GpuLost from error
            if error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
                raise _NeedsReset from error
            if error.value in _BROKEN:
                raise problem_of(error) from error
            if error.value in _WITHOUT:
                self.goes_without.add(name)
                # but not for what fails for one link or one other GPU only
                if len(arguments) == 0:
                    self._not_again.add((handle.gpu.uuid, name))
            return None
        finally:
            handle.calling = ""


class _NeedsReset(Exception):
    """The GPU answers nothing else until it is reset."""


class _translated:
    """NVML's errors as ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pynvml.NVMLError):
            if error.value in _LOST:
                raise GpuLost from error
            raise problem_of(error) from error


def _text(value: Any) -> str:
    """Older bindings answer bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bits(words: Any) -> Iterator[int]:
    return (
        index * _WORD_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if int(word) >> bit & 1
    )
