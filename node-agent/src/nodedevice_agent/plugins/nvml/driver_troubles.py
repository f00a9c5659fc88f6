"""Maps the driver's reports about a GPU to reasons, and decides which of them make it unhealthy. Pure.

These troubles last as long as the readings show them. Settings decide which of them make a GPU unhealthy (`nvml.health`).
Source: NVML API reference; NVIDIA's manuals on GPU memory error management, and on the fabric manager.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

from nodedevice_agent.plugins.nvml.reasons import GpuReason

# unhealthy: not allocated; report: offered, and shown in Healthy; ignore: not shown
Effect = Literal["unhealthy", "report", "ignore"]

# Actions that the driver requests to make a GPU work again.
# Source: NVML API reference, nvmlDeviceGpuRecoveryAction_t; the numbers are NVML's.
NO_RECOVERY = 0
RESET = 1
DRAIN_PEER_TO_PEER = 3
RECOVERY_ACTIONS = {
    RESET: "a reset of the GPU",
    2: "a reboot of the node",
    DRAIN_PEER_TO_PEER: "an end of its peer-to-peer traffic",
    4: "draining the GPU, then a reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}
# done, the GPU has been reset
RESETS = frozenset({RESET, 2, 4, 6, 7})

# Source: NVML API reference, nvmlGpuFabricState_t, and NVML_GPU_FABRIC_HEALTH_SUMMARY_*.
FABRIC_COMPLETED = 3
_FABRIC_STATES = {1: "has not started", 2: "is in progress"}
_FABRIC_UNHEALTHY, _FABRIC_LIMITED = 2, 3


class Trouble(Struct, frozen=True):
    """reason: one CamelCase word; message: a sentence with the remedy."""

    reason: str
    message: str


class Fabric(Struct, frozen=True):
    """NVML's state of a GPU in the fabric of its NVSwitches, the error of a completed one, and its health; 0 if not reported."""

    state: int
    status: int = 0
    health: int = 0

    @property
    def is_ready(self) -> bool:
        return self.state == FABRIC_COMPLETED and self.status == 0


class Reading(Struct, frozen=True):
    """One reading of a GPU. None: not supported, or not asked.

    hung_call: the NVML function that hangs; failure: why the UUID cannot be read; with either, nothing else is known.
    energy_mj: consumed since the driver was loaded, millijoules. ecc_uncorrected: since the driver was loaded.
    recovery_action: what the driver requests, see RECOVERY_ACTIONS. unsettled: Xids that are less than a second
    older than this reading, which says nothing about these; None: nor about any from before.
    """

    hung_call: str = ""
    failure: str = ""
    is_lost: bool = False
    energy_mj: int | None = None
    ecc_uncorrected: int | None = None
    recovery_action: int | None = None
    row_remap_failed: bool = False
    row_remap_pending: bool = False
    page_retirement_pending: bool = False
    fabric: Fabric | None = None
    unsettled: tuple[int, ...] | None = ()


_RESET_IT = "drain it and reset it (nvidia-smi --gpu-reset) when its pods have ended, or reboot the node"
_FABRIC_REMEDY = "see systemctl status nvidia-fabricmanager on the node; the GPU is used again by itself"


def recovery_words(action: int) -> str:
    """The action in words; newer drivers may request unknown actions."""
    return RECOVERY_ACTIONS.get(action, f"recovery action {action}")


def _troubles(reading: Reading, cause: str) -> Iterator[tuple[str, Trouble]]:
    """Each with the key of its setting. The first one is shown as the reason of a GPU that is out of service."""
    action = reading.recovery_action or NO_RECOVERY
    request = f"the driver requests {recovery_words(action)}{f', after {cause}' if cause else ''}"
    if action not in (NO_RECOVERY, DRAIN_PEER_TO_PEER):
        yield "reset_required", Trouble(GpuReason.RESET_REQUIRED, request)
    if reading.row_remap_failed:
        message = "a row of its memory is broken and could not be replaced by a spare one: have the GPU replaced"
        yield "row_remap_failed", Trouble(GpuReason.ROW_REMAP_FAILED, message)
    if reading.fabric is not None and (trouble := _fabric_trouble(reading.fabric)):
        yield "fabric", trouble
    if reading.row_remap_pending:
        message = f"a row of its memory is replaced by a spare one at the next reset: {_RESET_IT}"
        yield "row_remap_pending", Trouble(GpuReason.ROW_REMAP_PENDING, message)
    if reading.page_retirement_pending:
        message = f"a page of its memory is retired at the next reset: {_RESET_IT}"
        yield "page_retirement_pending", Trouble(GpuReason.PAGE_RETIREMENT_PENDING, message)
    if action == DRAIN_PEER_TO_PEER:
        yield "peer_to_peer_drain", Trouble(GpuReason.PEER_TO_PEER_DRAIN, request)
    if reading.fabric is not None and reading.fabric.is_ready and reading.fabric.health == _FABRIC_LIMITED:
        message = f"the NVSwitch fabric reports less bandwidth for this GPU: {_FABRIC_REMEDY}"
        yield "fabric_limited", Trouble(GpuReason.FABRIC_LIMITED, message)


def _fabric_trouble(fabric: Fabric) -> Trouble | None:
    if fabric.is_ready:
        message = f"the NVSwitch fabric reports this GPU as unhealthy: {_FABRIC_REMEDY}"
        return Trouble(GpuReason.FABRIC_UNHEALTHY, message) if fabric.health == _FABRIC_UNHEALTHY else None
    state = _FABRIC_STATES.get(fabric.state, f"is in state {fabric.state}")
    if fabric.state == FABRIC_COMPLETED:
        state = f"has failed with NVML error {fabric.status}"
    return Trouble(GpuReason.FABRIC_NOT_READY, f"its registration with the NVSwitch fabric {state}: {_FABRIC_REMEDY}")


# The defaults of the settings.
# A row or a page that waits for the reset is not used for new memory meanwhile, or was when its Xid 63 counted as harmless.
EFFECTS: Final[Mapping[str, Effect]] = MappingProxyType(
    {
        "reset_required": "unhealthy",
        "row_remap_failed": "unhealthy",
        "fabric": "unhealthy",
        "row_remap_pending": "report",
        "page_retirement_pending": "report",
        "peer_to_peer_drain": "report",
        "fabric_limited": "report",
    }
)


def found(reading: Reading, effects: Mapping[str, Effect], cause: str = "") -> Iterator[tuple[Trouble, Effect]]:
    """The troubles of a GPU and their effects, without ignored ones. cause: of the requested action, in words."""
    return ((trouble, effects[key]) for key, trouble in _troubles(reading, cause) if effects[key] != "ignore")
