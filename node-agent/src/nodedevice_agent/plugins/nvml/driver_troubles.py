"""Maps the driver's reports about a GPU to reasons, and decides which of them make it unhealthy. Pure.

These troubles last as long as the readings show them. Settings decide which of them make a GPU unhealthy (`nvml.health`).
Source: NVML API reference; NVIDIA's manuals on GPU memory error management, and on the fabric manager.
"""

from collections.abc import Callable, Iterator, Mapping
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
    """How far a GPU on NVSwitches has joined their fabric: NVML's state, the error of a completed one, and a summary.

    health: 0 if the driver reports none.
    """

    state: int
    status: int = 0
    health: int = 0

    @property
    def is_ready(self) -> bool:
        return self.state == FABRIC_COMPLETED and self.status == 0


class Reported(Struct, frozen=True):
    """The conditions in one reading. cause: a possible cause, in words."""

    recovery_action: int = NO_RECOVERY
    row_remap_failed: bool = False
    row_remap_pending: bool = False
    page_retirement_pending: bool = False
    fabric: Fabric | None = None
    cause: str = ""


_RESET_IT = "drain it and reset it (nvidia-smi --gpu-reset) when its pods have ended, or reboot the node"
_FABRIC_REMEDY = "see systemctl status nvidia-fabricmanager on the node; the GPU is used again by itself"


def recovery_words(action: int) -> str:
    """The action in words; newer drivers may request unknown actions."""
    return RECOVERY_ACTIONS.get(action, f"recovery action {action}")


def _recovery(now: Reported) -> Trouble | None:
    if now.recovery_action in (NO_RECOVERY, DRAIN_PEER_TO_PEER):
        return None
    return Trouble(GpuReason.RESET_REQUIRED, _request(now))


def _peer_to_peer(now: Reported) -> Trouble | None:
    return Trouble(GpuReason.PEER_TO_PEER_DRAIN, _request(now)) if now.recovery_action == DRAIN_PEER_TO_PEER else None


def _request(now: Reported) -> str:
    after = f", after {now.cause}" if now.cause else ""
    return f"the driver requests {recovery_words(now.recovery_action)}{after}"


def _remap_failed(now: Reported) -> Trouble | None:
    message = "a row of its memory is broken and could not be replaced by a spare one: have the GPU replaced"
    return Trouble(GpuReason.ROW_REMAP_FAILED, message) if now.row_remap_failed else None


def _remap_pending(now: Reported) -> Trouble | None:
    message = f"a row of its memory is replaced by a spare one at the next reset: {_RESET_IT}"
    return Trouble(GpuReason.ROW_REMAP_PENDING, message) if now.row_remap_pending else None


def _retirement_pending(now: Reported) -> Trouble | None:
    message = f"a page of its memory is retired at the next reset: {_RESET_IT}"
    return Trouble(GpuReason.PAGE_RETIREMENT_PENDING, message) if now.page_retirement_pending else None


def _fabric(now: Reported) -> Trouble | None:
    fabric = now.fabric
    if fabric is None or (fabric.is_ready and fabric.health != _FABRIC_UNHEALTHY):
        return None
    if fabric.is_ready:
        return Trouble(
            GpuReason.FABRIC_UNHEALTHY, f"the NVSwitch fabric reports this GPU as unhealthy: {_FABRIC_REMEDY}"
        )
    state = _FABRIC_STATES.get(fabric.state, f"is in state {fabric.state}")
    if fabric.state == FABRIC_COMPLETED:
        state = f"has failed with NVML error {fabric.status}"
    return Trouble(GpuReason.FABRIC_NOT_READY, f"its registration with the NVSwitch fabric {state}: {_FABRIC_REMEDY}")


def _fabric_limited(now: Reported) -> Trouble | None:
    if now.fabric is None or not now.fabric.is_ready or now.fabric.health != _FABRIC_LIMITED:
        return None
    return Trouble(
        GpuReason.FABRIC_LIMITED, f"the NVSwitch fabric reports less bandwidth for this GPU: {_FABRIC_REMEDY}"
    )


# by the key of its setting; the first one is shown as the reason of a GPU that is out of service
_CONDITIONS: Final[Mapping[str, Callable[[Reported], Trouble | None]]] = {
    "reset_required": _recovery,
    "row_remap_failed": _remap_failed,
    "fabric": _fabric,
    "row_remap_pending": _remap_pending,
    "page_retirement_pending": _retirement_pending,
    "peer_to_peer_drain": _peer_to_peer,
    "fabric_limited": _fabric_limited,
}
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


def found(now: Reported, effects: Mapping[str, Effect]) -> Iterator[tuple[Trouble, Effect]]:
    """The troubles of a GPU in this reading, and their effects, without ignored ones. effects: of each key of EFFECTS."""
    for key, condition in _CONDITIONS.items():
        trouble, effect = condition(now), effects[key]
        if trouble is not None and effect != "ignore":
            yield trouble, effect
