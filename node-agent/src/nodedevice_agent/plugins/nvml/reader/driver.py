"""NVIDIA's driver through NVML, as far as this plugin needs it: pynvml's calls in, values out.

Runs only in the reader's process, and every call may hang. Features that a GPU or an older driver does not support are left out and
noted for that GPU; a lost GPU is a reading; only a driver that does not work at all is an error.
Source: NVML API reference; pynvml of the distribution nvidia-ml-py.
"""

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.plugins.nvml.driver_troubles import RESET, Fabric, Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, is_uuid, sysfs_bus_id
from nodedevice_agent.plugins.nvml.pci_bus import has_nvidia_device
from nodedevice_agent.plugins.nvml.reader import problems
from nodedevice_agent.plugins.nvml.reader.access import DriverFiles
from nodedevice_agent.plugins.nvml.reader.fabric import ASK_FABRIC
from nodedevice_agent.plugins.nvml.reader.instances import InstanceReader

_WITHOUT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
_BROKEN = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)
_NAME = "libnvidia-ml.so.1"
# names in Gpu.not_supported
_FEATURES = {
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetTotalEnergyConsumption": "energy",
    "nvmlDeviceGetTotalEccErrors": "ecc",
    "nvmlDeviceGetFieldValues": "recoveryAction",
}
MAX_LINKS = pynvml.NVML_NVLINK_MAX_LINKS
# far more than a GPU has
_MAX_INSTANCES = 64
SWITCH = "switch"
_SWITCH_TYPE = 2
# NVSwitches are bridges of no usual kind
_BRIDGE_CLASS = "0x0680"
_NUMA_WORDS = 16
_WORD_BITS = 64


class GpuLost(Exception):
    """The GPU no longer responds."""


class NeedsReset(Exception):
    """The GPU responds to no call until it is reset."""


class GpuUnidentified(Exception):
    """The UUID of a GPU cannot be read; the text names the reason."""


class Handle(Struct):
    """A GPU and its NVML handle.

    calling: the last function called for it, reported when it hangs. is_stale: its UUID, or its fabric, has changed since the
    inventory. total_bytes: all of its memory. is_on_switches: whether its NVLinks end at NVSwitches. fabric: as read last.
    """

    nvml: Any
    gpu: Gpu
    calling: str = ""
    is_stale: bool = False
    total_bytes: int | None = None
    is_on_switches: bool = False
    fabric: Fabric | None = None


class Driver:
    """An NVML session. calling: the running function, reported when it hangs."""

    def __init__(self, host_root: str, library_dir: str = "") -> None:
        self._sysfs = Path(host_root) / "sys/bus/pci/devices"
        self._library_dir = library_dir
        self.files = DriverFiles(host=host_root.rstrip("/"))
        # UUID and feature
        self._not_supported: set[tuple[str, str]] = set()
        self._not_again: set[tuple[str, Callable[..., Any]]] = set()
        self.calling = ""
        self._instances = InstanceReader(self._call)

    def open(self) -> str:
        """Load and initialize the library. Returns the driver's version, "" if unknown. Raises DriverProblem."""
        self.calling = "nvmlInit"
        self._load()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise problems.problem_of_start(error, self.files) from error
        try:
            return str(self._call(pynvml.nvmlSystemGetDriverVersion))
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""

    def _load(self) -> None:
        """Load the library by its path: no other library of its directory replaces this process's own. Raises DriverProblem."""
        path = f"{self._library_dir.rstrip('/')}/{_NAME}" if self._library_dir else _NAME
        try:
            pynvml.nvmlLib = ctypes.CDLL(path)
        except OSError as error:
            raise problems.DriverProblem(problems.problem_of_library(path, error)) from error

    def count(self) -> int:
        """How many GPUs the driver lists. Raises DriverProblem."""
        try:
            return int(self._call(pynvml.nvmlDeviceGetCount))
        except pynvml.NVMLError as error:
            raise problems.problem_of(error) from error

    def describe(self, index: int) -> Handle:
        """The GPU at this index. Raises GpuLost, or GpuUnidentified when its UUID cannot be read for another reason."""
        try:
            nvml = self._call(pynvml.nvmlDeviceGetHandleByIndex, index)
            self.calling = "nvmlDeviceGetUUID"
            uuid = _uuid_of(nvml)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                raise GpuLost from error
            raise GpuUnidentified(problems.text_of(error)) from error
        handle = Handle(nvml, Gpu(uuid))
        bus_id = _bus_id(self._ask_or_none(handle, pynvml.nvmlDeviceGetPciInfo))
        handle.total_bytes, memory_bytes = self._memory(handle)
        minor = self._ask_or_none(handle, pynvml.nvmlDeviceGetMinorNumber)
        handle.gpu = Gpu(
            uuid,
            model=self._ask_or_none(handle, pynvml.nvmlDeviceGetName) or "",
            memory_bytes=memory_bytes,
            pci_bus_id=bus_id,
            numa_node=self._numa_node(handle, bus_id),
            minor=int(minor) if minor is not None else None,
            index=index,
        )
        self._read_instances(handle)
        return handle

    def _memory(self, handle: Handle) -> tuple[int | None, int | None]:
        """All of its memory, and what programs can use of it: the driver reserves some, unknown before driver 510."""
        both = self._ask_or_none(handle, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if both is not None:
            return int(both.total), max(int(both.total) - int(both.reserved), 0)
        first = self._ask_or_none(handle, pynvml.nvmlDeviceGetMemoryInfo)
        total = int(first.total) if first is not None else None
        return total, total

    def sees_switches(self) -> bool:
        """Whether the PCI bus has NVSwitches: links to them are down until the fabric manager runs."""
        return has_nvidia_device(self._sysfs, _BRIDGE_CLASS)

    def link_end(self, handle: Handle, link: int, uuid_by_bus_id: Mapping[str, str]) -> str:
        """The other end of this NVLink: the UUID of a GPU, SWITCH, or "" for anything else."""
        if self._ask_or_none(handle, pynvml.nvmlDeviceGetNvLinkState, link) != pynvml.NVML_FEATURE_ENABLED:
            return ""
        remote = self._ask_or_none(handle, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, link)
        peer = uuid_by_bus_id.get(_bus_id(remote))
        if peer is not None and peer != handle.gpu.uuid:
            return peer
        # older drivers lack this call and know only links to GPUs and to switches
        kind = self._ask_or_none(handle, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, link)
        return SWITCH if kind in (_SWITCH_TYPE, None) else ""

    def ancestor(self, one: Handle, other: Handle) -> Ancestor | None:
        """The common ancestor of two GPUs in the PCI tree."""
        level = self._ask_or_none(one, pynvml.nvmlDeviceGetTopologyCommonAncestor, other.nvml)
        return Ancestor(level) if level in set(Ancestor) else None

    def reading(self, handle: Handle, *, with_energy: bool = False, is_first: bool = False) -> Reading:
        """One reading of the GPU, and its instances. Raises DriverProblem when the driver itself does not work.

        with_energy: also read the energy counter, which takes 3 ms. is_first: also if the driver reports no recovery action.
        """
        try:
            if self._uuid(handle) != handle.gpu.uuid:
                handle.is_stale = True
                # no longer the GPU that was listed
                return Reading(is_lost=True)
            self._read_instances(handle)
            action = self._recovery_action(handle)
            wants_energy = with_energy or (is_first and action is None)
            energy = self._ask(handle, pynvml.nvmlDeviceGetTotalEnergyConsumption) if wants_energy else None
            ecc = self._ask(
                handle,
                pynvml.nvmlDeviceGetTotalEccErrors,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            )
            rows = self._ask(handle, pynvml.nvmlDeviceGetRemappedRows)
            return Reading(
                energy_mj=energy,
                ecc_uncorrected=ecc,
                recovery_action=action,
                row_remap_failed=bool(rows and rows[3]),
                row_remap_pending=bool(rows and rows[2]),
                page_retirement_pending=bool(self._ask(handle, pynvml.nvmlDeviceGetRetiredPagesPendingStatus)),
                fabric=self._fabric(handle),
            )
        except GpuUnidentified as error:
            return Reading(failure=str(error))
        except GpuLost:
            return Reading(is_lost=True)
        except NeedsReset:
            return Reading(recovery_action=RESET)

    def not_supported(self, uuid: str) -> list[str]:
        """Features that turned out to be unsupported so far, sorted."""
        # a copy: a call that hung may return in its thread at any time
        return sorted(feature for of, feature in list(self._not_supported) if of == uuid)

    def _uuid(self, handle: Handle) -> str:
        """The current UUID: some resets change it. Raises GpuLost, NeedsReset, GpuUnidentified and DriverProblem."""
        handle.calling = self.calling = "nvmlDeviceGetUUID"
        try:
            return _uuid_of(handle.nvml)
        except pynvml.NVMLError as error:
            _raise_fatal(error)
            raise GpuUnidentified(problems.text_of(error)) from error

    def _recovery_action(self, handle: Handle) -> int | None:
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        values = self._ask(handle, pynvml.nvmlDeviceGetFieldValues, [field])
        if values is None:
            return None
        if values[0].nvmlReturn != pynvml.NVML_SUCCESS:
            if values[0].nvmlReturn in _WITHOUT:
                self._note(handle, "nvmlDeviceGetFieldValues", is_supported=False)
            return None
        return int(values[0].value.uiVal)

    def _fabric(self, handle: Handle) -> Fabric | None:
        """None for a GPU without an NVSwitch, or if the driver does not report it."""
        asking = ASK_FABRIC if handle.is_on_switches else ()
        now: Fabric | None = next(filter(None, (self._ask(handle, ask) for ask in asking)), None)
        if now is None or now.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            return None
        # its links are up now: a new session finds them
        handle.is_stale |= now.is_ready and handle.fabric is not None and not handle.fabric.is_ready
        handle.fabric = now
        return now

    def _read_instances(self, handle: Handle) -> None:
        """Update the handle's GPU with its current instances; keeps the last known ones if they cannot be read."""
        mode = self._ask_or_none(handle, pynvml.nvmlDeviceGetMigMode)
        if mode is None:
            return
        instances = None
        if mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            count = min(self._ask_or_none(handle, pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0, _MAX_INSTANCES)
            handle.calling = "nvmlDeviceGetMigDeviceHandleByIndex"
            try:
                instances = self._instances.read(handle.nvml, count, handle.gpu.model, handle.total_bytes)
            except (pynvml.NVMLError, UnicodeDecodeError):
                # in MIG mode at any rate
                instances = handle.gpu.instances or ()
        if instances != handle.gpu.instances:
            # some calls are not supported while a GPU has instances; a copy, as in not_supported()
            self._not_again.difference_update([each for each in list(self._not_again) if each[0] == handle.gpu.uuid])
        handle.gpu = replace(handle.gpu, instances=instances)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises NVMLError."""
        self.calling = function.__name__
        return function(*arguments)

    def _numa_node(self, handle: Handle, bus_id: str) -> int | None:
        """The NUMA node from sysfs, which has -1 on machines with one node; otherwise from the driver."""
        try:
            node = int((self._sysfs / (bus_id or "-") / "numa_node").read_text(encoding="ascii"))
        except (OSError, ValueError):
            words = self._ask_or_none(
                handle, pynvml.nvmlDeviceGetMemoryAffinity, _NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE
            )
            return _first_bit(words) if words is not None else None
        return node if node >= 0 else None

    def _ask_or_none(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """Like _ask, but None for a GPU that is lost or needs a reset; the next reading reports that."""
        try:
            return self._ask(handle, function, *arguments)
        except (GpuLost, NeedsReset):
            return None

    def _ask(self, handle: Handle, function: Callable[..., Any], *arguments: Any) -> Any:
        """None for a function that this GPU or driver does not support. Raises GpuLost, NeedsReset and DriverProblem."""
        name = function.__name__
        if (handle.gpu.uuid, function) in self._not_again:
            return None
        handle.calling = self.calling = name
        try:
            answer = function(handle.nvml, *arguments)
            # as after a change of the ECC mode
            self._note(handle, name, is_supported=True)
            return answer
        except pynvml.NVMLError as error:
            _raise_fatal(error)
            if error.value in _WITHOUT:
                self._note(handle, name, is_supported=False)
                # but not a function that may fail for one link or one other GPU
                if len(arguments) == 0:
                    self._not_again.add((handle.gpu.uuid, function))
            return None
        except UnicodeDecodeError:
            # invalid text, from corrupt firmware
            return None

    def _note(self, handle: Handle, name: str, *, is_supported: bool) -> None:
        if name in _FEATURES:
            note = self._not_supported.discard if is_supported else self._not_supported.add
            note((handle.gpu.uuid, _FEATURES[name]))


def _raise_fatal(error: pynvml.NVMLError) -> None:
    """Translate errors about the whole GPU or driver. Raises GpuLost, NeedsReset and DriverProblem."""
    if error.value in _LOST:
        raise GpuLost from error
    if error.value == pynvml.NVML_ERROR_RESET_REQUIRED:
        raise NeedsReset from error
    if error.value in _BROKEN:
        raise problems.problem_of(error) from error


def _uuid_of(nvml: Any) -> str:
    """Raises GpuUnidentified for an unusable UUID, and NVMLError."""
    try:
        uuid = str(pynvml.nvmlDeviceGetUUID(nvml))
    except UnicodeDecodeError as error:
        raise GpuUnidentified("its UUID is not text") from error
    if not is_uuid(uuid):
        raise GpuUnidentified(f"its UUID is {uuid!r}")
    return uuid


def _bus_id(pci_info: Any) -> str:
    """The bus ID as in sysfs; empty if unknown. pci_info: None if the call failed."""
    try:
        # the binding decodes the attribute on access
        return sysfs_bus_id(pci_info.busId) if pci_info is not None else ""
    except UnicodeDecodeError:
        return ""


def _first_bit(words: Any) -> int | None:
    """The lowest set bit of a mask of several words."""
    mask = sum(int(word) << index * _WORD_BITS for index, word in enumerate(words))
    return (mask & -mask).bit_length() - 1 if mask else None
