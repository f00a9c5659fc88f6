"""The health of one GPU: what takes it out of service, and what brings it back.

Two kinds of trouble. A *mark* (a critical Xid, an uncorrectable ECC error) means that the GPU has to be reset; it stays until a
reset, or until an administrator clears it. A *passing* trouble (lost, a call that hangs, a reset that the driver requests) lasts
as long as the readings show it. With both, the mark is reported: it came first and explains more.
A reset is detected by any of: the GPU was lost or gone and is back; its energy counter or its volatile ECC counter, which both
restart with the driver, has decreased; the driver requested a reset or a reboot and no longer requests any.

Unlisted Xids (the driver's error numbers) are critical: new drivers have new ones, and taking out a healthy GPU costs less than
allocating a broken one. Settings override both ways.
Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors) and the practice of NVIDIA's own device plugin.
"""

from collections import Counter

from msgspec import Struct, field
from msgspec.structs import replace

# Faults of the program on the GPU, which was ended, or events that the driver has already handled.
APPLICATION_XIDS = {
    8: "GPU stopped processing: a program's work timed out",
    13: "Graphics engine exception: a program accessed memory or used instructions wrongly",
    31: "GPU memory page fault: a program used an address that is not its own",
    43: "GPU stopped processing: a program was reset after its own fault",
    45: "Preemptive cleanup: a program's channels were removed, for it ended or for an earlier error",
    63: "A memory page was retired or a row remapped, in time; active after the next reset",
    68: "Video decoder exception caused by a program",
    109: "Context switch timeout of a program",
    154: "The action for the GPU's recovery changed; which one it is, is read from the GPU",
}

# For messages only: the more common critical ones.
CRITICAL_XIDS = {
    32: "Invalid or corrupted push buffer stream",
    38: "Driver firmware error",
    46: "GPU stopped processing",
    48: "Uncorrectable (double bit) ECC error",
    61: "Internal microcontroller breakpoint or warning",
    62: "Internal microcontroller halt",
    64: "A memory page could not be retired, or a row not be remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "High rate of single bit ECC errors",
    94: "Contained memory error: the program that met it was ended",
    95: "Uncontained memory error",
    119: "GSP firmware does not answer",
    120: "GSP firmware error",
    121: "Chip-to-chip NVLink error",
    140: "Unrecovered ECC error",
    143: "GPU initialization error",
}

# between two log lines about one Xid of one GPU
_LOG_SECONDS = 60.0
# of one GPU and one Xid; far more kinds than exist
_MAX_KINDS = 1000

# What the driver requests so that a GPU works again.
# Source: NVML API reference, nvmlDeviceGpuRecoveryAction_t; the numbers are NVML's.
NO_RECOVERY = 0
RESET = 1
RECOVERY_ACTIONS = {
    RESET: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of its peer-to-peer traffic",
    4: "draining the GPU, then a reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}
# done, the GPU has been reset
RESETS = frozenset({RESET, 2, 4, 6, 7})


class Trouble(Struct, frozen=True):
    """reason: one CamelCase word; message: a sentence with the remedy."""

    reason: str
    message: str


class Reading(Struct, frozen=True):
    """One reading of a GPU. None: not supported.

    hung_call: the NVML function that hangs; failure: why the UUID cannot be read; with either, nothing else is known.
    energy_mj: consumed since the driver was loaded, millijoules. ecc_uncorrected: since the driver was loaded.
    recovery_action: what the driver requests, see RECOVERY_ACTIONS.
    """

    hung_call: str = ""
    failure: str = ""
    is_lost: bool = False
    energy_mj: int | None = None
    ecc_uncorrected: int | None = None
    recovery_action: int | None = None


class GpuHealth(Struct, frozen=True):
    """is_away: it was lost or gone at the last reading. read: the last reading of the GPU itself.

    marked_at: the last reading before it was marked, which shows a reset even if no agent ran meanwhile.
    """

    mark: Trouble | None = None
    passing: Trouble | None = None
    is_away: bool = False
    read: Reading = field(default_factory=Reading)
    marked_at: Reading = field(default_factory=Reading)

    @property
    def trouble(self) -> Trouble | None:
        """Why it is unhealthy; None when it is healthy."""
        return self.mark or self.passing

    @property
    def is_unreachable(self) -> bool:
        """Away or unreadable: a new reader may reach it."""
        return self.is_away or (self.passing is not None and self.passing.reason == _UNREADABLE)


class HealthRules(Struct, frozen=True):
    """harmless_xids: all others take a GPU out of service. ecc_marks: an uncorrectable ECC error does."""

    harmless_xids: frozenset[int] = frozenset(APPLICATION_XIDS)
    ecc_marks: bool = True


_REMEDY = "reset it (nvidia-smi --gpu-reset) or reboot; if it is healthy: nodedevice-agent gpu clear"
LOST = Trouble("GpuLost", "the GPU has fallen off the bus or no longer answers; reset it, or reboot the node")
GONE = Trouble(
    "GpuGone",
    "the driver no longer lists this GPU; it is used again when it is back; if it was removed for good: nodedevice-agent gpu clear",
)
_UNREADABLE = "GpuUnreadable"
SILENT = Trouble(_UNREADABLE, "the driver lists a GPU without a readable UUID; see the kernel log")
ECC = Trouble("EccUncorrectable", f"uncorrectable ECC errors in its memory; {_REMEDY}")


def with_xid(health: GpuHealth, xid: int, rules: HealthRules) -> GpuHealth:
    """The driver reported this Xid. Only the first critical one marks: later ones are mostly its consequences."""
    if health.mark is not None or xid in rules.harmless_xids:
        return health
    words = meaning(xid)
    named = f"Xid {xid} ({words})" if words else f"Xid {xid}"
    return _marked(health, Trouble(f"Xid{xid}", f"{named}; {_REMEDY}"))


def with_ecc_event(health: GpuHealth, rules: HealthRules) -> GpuHealth:
    """The driver reported a double bit error."""
    return _marked(health, ECC) if rules.ecc_marks else health


def with_reading(health: GpuHealth, reading: Reading, rules: HealthRules) -> tuple[GpuHealth, str]:
    """The GPU was read. Returns its health, and what showed a reset ("" without one)."""
    if reading.hung_call:
        message = f"{reading.hung_call} hangs for this GPU; see the kernel log"
        return replace(health, passing=Trouble("DriverHangs", message)), ""
    if reading.failure:
        message = f"the UUID of the GPU can no longer be read ({reading.failure}); see the kernel log"
        return replace(health, passing=Trouble(_UNREADABLE, message)), ""
    if reading.is_lost:
        return away(health, LOST), ""
    how = _reset_seen(health, reading)
    if how:
        health = cleared(health)
    elif rules.ecc_marks and _has_risen(health.read.ecc_uncorrected, reading.ecc_uncorrected):
        health = _marked(health, ECC)
    return replace(health, passing=_requested(reading), is_away=False, read=_merged(health.read, reading)), how


def away(health: GpuHealth, trouble: Trouble) -> GpuHealth:
    """LOST: it no longer answers. GONE: the driver no longer lists it."""
    return replace(health, passing=trouble, is_away=True)


def silent(health: GpuHealth) -> GpuHealth:
    """It may be the GPU whose UUID cannot be read."""
    return replace(health, passing=SILENT)


def cleared(health: GpuHealth) -> GpuHealth:
    """An administrator marked it as healthy. What the driver reports still counts."""
    return replace(health, mark=None, marked_at=Reading())


def _marked(health: GpuHealth, mark: Trouble) -> GpuHealth:
    return health if health.mark is not None else replace(health, mark=mark, marked_at=health.read)


def _reset_seen(health: GpuHealth, reading: Reading) -> str:
    before = health.read
    if health.is_away:
        return "it was unreachable and is back"
    if _has_risen(reading.energy_mj, before.energy_mj):
        return "its energy counter restarted"
    if _has_risen(reading.ecc_uncorrected, before.ecc_uncorrected):
        return "its volatile ECC counter restarted"
    if before.recovery_action in RESETS and reading.recovery_action == NO_RECOVERY:
        return f"the driver no longer requests {recovery_words(before.recovery_action)}"
    return ""


def _requested(reading: Reading) -> Trouble | None:
    if not reading.recovery_action:
        return None
    return Trouble("ResetRequired", f"the driver requests {recovery_words(reading.recovery_action)}")


def _has_risen(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _merged(before: Reading, after: Reading) -> Reading:
    """Keep the last value of a counter that could not be read this time."""
    return Reading(
        energy_mj=before.energy_mj if after.energy_mj is None else after.energy_mj,
        ecc_uncorrected=before.ecc_uncorrected if after.ecc_uncorrected is None else after.ecc_uncorrected,
        recovery_action=before.recovery_action if after.recovery_action is None else after.recovery_action,
    )


def recovery_words(action: int) -> str:
    """In words; newer drivers may request unknown actions."""
    return RECOVERY_ACTIONS.get(action, f"recovery action {action}")


def meaning(xid: int) -> str:
    """In a few words; empty when unknown."""
    return CRITICAL_XIDS.get(xid) or APPLICATION_XIDS.get(xid, "")


class XidLogLimiter:
    """Limits the log of Xids: each kind is logged at once, then at most once a minute with its count. Pure."""

    def __init__(self) -> None:
        self._logged_at: dict[tuple[str, int], float] = {}
        self._withheld: Counter[tuple[str, int]] = Counter()

    def seen(self, uuid: str, xid: int, count: int, now: float) -> int:
        """How many to log now, including those withheld before; 0: none."""
        kind = (uuid, xid)
        if kind not in self._logged_at and len(self._logged_at) >= _MAX_KINDS:
            oldest = next(iter(self._logged_at))
            del self._logged_at[oldest], self._withheld[oldest]
        self._withheld[kind] += count
        if kind in self._logged_at and now - self._logged_at[kind] < _LOG_SECONDS:
            return 0
        self._logged_at[kind] = now
        return self._withheld.pop(kind)
