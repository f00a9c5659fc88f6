"""The health of one GPU: what takes it out of service, and what brings it back.

Two kinds of trouble. A *mark* (a critical Xid, an uncorrectable ECC error) says that the GPU has to be reset, and stays until it
was, or until an administrator says that all is well. A *passing* trouble (lost, a call that hangs, a reset that the driver asks
for) holds as long as the GPU is read so. The mark is what is shown when there are both: it was first and says more.
A reset shows by any of: the GPU was lost or gone and is back; its energy counter or its volatile ECC counter, which both begin
anew with the driver, has gone back; the driver asked for a reset or a reboot and asks for nothing any more.
"""

from dataclasses import dataclass, field, replace

from nodedevice_agent.plugins.nvml.health.xids import XidPolicy, meaning

# What the driver wants done for a GPU to work again.
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


@dataclass(frozen=True, slots=True)
class Trouble:
    """reason: one word for machines; message: a sentence with the remedy."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a GPU. What it cannot tell is None.

    hung_call: the driver's function that does not come back; failure: why the GPU does not even tell its UUID; with either,
    nothing else is known. energy_mj: used since the driver was loaded, millijoules. ecc_uncorrected: since the driver was loaded.
    recovery_action: what the driver wants done, see RECOVERY_ACTIONS.
    """

    hung_call: str = ""
    failure: str = ""
    is_lost: bool = False
    energy_mj: int | None = None
    ecc_uncorrected: int | None = None
    recovery_action: int | None = None


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """is_away: it was lost or gone when last looked at. read: the last reading of the GPU itself.

    marked_at: the last reading before it was marked, by which a reset shows also to who was not there meanwhile.
    """

    mark: Trouble | None = None
    passing: Trouble | None = None
    is_away: bool = False
    read: Reading = field(default_factory=Reading)
    marked_at: Reading = field(default_factory=Reading)

    @property
    def trouble(self) -> Trouble | None:
        """Why it is not healthy; None when it is."""
        return self.mark or self.passing

    @property
    def is_unreachable(self) -> bool:
        """Away, or it answers in no sense: whoever starts anew may reach it."""
        return self.is_away or (self.passing is not None and self.passing.reason == _UNREADABLE)


@dataclass(frozen=True, slots=True)
class HealthRules:
    """ecc_marks: an uncorrectable ECC error takes a GPU out of service."""

    xids: XidPolicy = field(default_factory=XidPolicy)
    ecc_marks: bool = True


_REMEDY = "reset it (nvidia-smi --gpu-reset) or reboot; or say that it is well: nodedevice-agent gpu clear"
LOST = Trouble("GpuLost", "the GPU has fallen off the bus or no longer answers; reset it, or reboot the node")
GONE = Trouble(
    "GpuGone",
    "the driver no longer lists this GPU; it counts again when it is back; if it was removed for good: nodedevice-agent gpu clear",
)
_UNREADABLE = "GpuUnreadable"
SILENT = Trouble(_UNREADABLE, "the driver lists a GPU that does not tell which it is; look at the kernel log")
ECC = Trouble("EccUncorrectable", f"uncorrectable ECC errors in its memory; {_REMEDY}")


def with_xid(health: GpuHealth, xid: int, rules: HealthRules) -> GpuHealth:
    """The driver reported this Xid. Only the first critical one marks: what follows is mostly its consequence."""
    if health.mark is not None or not rules.xids.is_critical(xid):
        return health
    words = meaning(xid)
    said = f"Xid {xid} ({words})" if words else f"Xid {xid}"
    return _marked(health, Trouble(f"Xid{xid}", f"{said}; {_REMEDY}"))


def with_ecc_event(health: GpuHealth, rules: HealthRules) -> GpuHealth:
    """The driver reported a double bit error."""
    return _marked(health, ECC) if rules.ecc_marks else health


def with_reading(health: GpuHealth, reading: Reading, rules: HealthRules) -> tuple[GpuHealth, str]:
    """The GPU was looked at. Returns its health, and how it was seen to have been reset ("" when it was not)."""
    if reading.hung_call:
        hung = Trouble("DriverHangs", f"{reading.hung_call} does not come back for this GPU; look at the kernel log")
        return replace(health, passing=hung), ""
    if reading.failure:
        mute = Trouble(_UNREADABLE, f"the GPU no longer tells its UUID ({reading.failure}); look at the kernel log")
        return replace(health, passing=mute), ""
    if reading.is_lost:
        return lost(health), ""
    how = _reset_seen(health, reading)
    if how:
        health = cleared(health)
    elif rules.ecc_marks and _has_risen(health.read.ecc_uncorrected, reading.ecc_uncorrected):
        health = _marked(health, ECC)
    return replace(health, passing=_asked_for(reading), is_away=False, read=_merged(health.read, reading)), how


def lost(health: GpuHealth) -> GpuHealth:
    """It no longer answers."""
    return replace(health, passing=LOST, is_away=True)


def gone(health: GpuHealth) -> GpuHealth:
    """The driver no longer lists it."""
    return replace(health, passing=GONE, is_away=True)


def silent(health: GpuHealth) -> GpuHealth:
    """It is perhaps the one that does not even tell its UUID."""
    return replace(health, passing=SILENT)


def cleared(health: GpuHealth) -> GpuHealth:
    """An administrator says that it is well. What the driver itself still says of it holds."""
    return replace(health, mark=None, marked_at=Reading())


def _marked(health: GpuHealth, mark: Trouble) -> GpuHealth:
    return health if health.mark is not None else replace(health, mark=mark, marked_at=health.read)


def _reset_seen(health: GpuHealth, reading: Reading) -> str:
    before = health.read
    if health.is_away:
        return "it was away and is back"
    if _has_risen(reading.energy_mj, before.energy_mj):
        return "its energy counter began anew"
    if _has_risen(reading.ecc_uncorrected, before.ecc_uncorrected):
        return "its volatile ECC counter began anew"
    if before.recovery_action in RESETS and reading.recovery_action == NO_RECOVERY:
        return f"the driver no longer asks for: {recovery_words(before.recovery_action)}"
    return ""


def _asked_for(reading: Reading) -> Trouble | None:
    if not reading.recovery_action:
        return None
    return Trouble("ResetRequired", f"the driver asks for: {recovery_words(reading.recovery_action)}")


def _has_risen(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _merged(before: Reading, after: Reading) -> Reading:
    """A counter that could not be read once is not forgotten."""
    return Reading(
        energy_mj=before.energy_mj if after.energy_mj is None else after.energy_mj,
        ecc_uncorrected=before.ecc_uncorrected if after.ecc_uncorrected is None else after.ecc_uncorrected,
        recovery_action=before.recovery_action if after.recovery_action is None else after.recovery_action,
    )


def recovery_words(action: int) -> str:
    """For people; newer drivers may ask for what is not known here."""
    return RECOVERY_ACTIONS.get(action, f"recovery action {action}")
