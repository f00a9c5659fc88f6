"""The health of one GPU: which events make it unhealthy, and which make it healthy again. Pure.

There are three kinds of trouble. A *suspicion* is a critical Xid of the last second: the agent asks the driver at once which
action the GPU needs, and again a second later, as the action may follow the event. From then on the driver's word counts. A
*mark* means that the GPU has to be reset: after a critical Xid if the driver reports no action or a setting says so, after an
uncorrectable ECC error in the same cases, or after one from before the agent ran. It stays until a reset, or until an
administrator clears it. A *passing* trouble (lost, a call that hangs, see driver_troubles.py) lasts as long as the readings show
it. The mark is reported first: it came first and explains more.

A reset is detected by any of: the GPU was lost or gone and is back; its energy counter or its volatile ECC counter, which both
restart with the driver, has decreased; the driver requested a reset or a reboot and no longer requests any.

Source: NVML API reference, and the practice of NVIDIA's own device plugin and DRA driver.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from nodedevice_agent.plugins.nvml.driver_troubles import (
    EFFECTS,
    NO_RECOVERY,
    RESETS,
    Effect,
    Reading,
    Trouble,
    found,
    recovery_words,
)
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.xids import APPLICATION_XIDS, ECC_XIDS, named

# Xids of one GPU within a second, of different kinds; beyond that, critical ones are marks at once
_MAX_RECENT = 100
# how often the energy counter is read, in seconds: 3 ms a call
ENERGY_ALWAYS, ENERGY_SELDOM = 0.0, 60.0


# The effect of an uncorrectable ECC error. driver: the action that the driver requests after it, or its Xid if the driver reports
# no action; without either the GPU is unhealthy. unhealthy: always. ignore: none.
# Source: NVIDIA GPU memory error management, error recovery and response flags.
EccErrors = Literal["driver", "unhealthy", "ignore"]


class Place(Struct, frozen=True):
    """A MIG instance by the driver's numbers of its GPU instance and its compute instance; None: all of the GPU instance."""

    gpu_instance: int
    compute_instance: int | None = None

    def covers(self, instance: MigInstance) -> bool:
        return self.gpu_instance == instance.gpu_instance and self.compute_instance in (None, instance.compute_instance)


class RecentXid(Struct, frozen=True):
    """An Xid that waits for the second reading of the driver's action. place: None for the whole GPU.

    is_critical: by our list. is_excused: a setting says that it is harmless.
    """

    xid: int
    place: Place | None = None
    is_critical: bool = False
    is_excused: bool = False


class InstanceMark(Struct, frozen=True):
    place: Place
    trouble: Trouble


class GpuHealth(Struct, frozen=True):
    """is_away: it was lost or gone at the last reading. read: the last reading of the GPU itself.

    marked_at: the last reading before it was marked, which shows a reset even if no agent ran meanwhile. recent: the Xids of the
    last second. requested: the driver's recovery action, unless it began in that second. excused: an action that
    followed an Xid that a setting declares harmless. cause: the Xid before the requested action, in words. notes: troubles of a
    GPU that is offered.
    """

    mark: Trouble | None = None
    passing: Trouble | None = None
    is_away: bool = False
    read: Reading = field(default_factory=Reading)
    marked_at: Reading = field(default_factory=Reading)
    recent: tuple[RecentXid, ...] = ()
    requested: int = NO_RECOVERY
    excused: int = NO_RECOVERY
    cause: str = ""
    notes: tuple[Trouble, ...] = ()
    instance_marks: tuple[InstanceMark, ...] = ()

    @property
    def trouble(self) -> Trouble | None:
        return self.mark or self.suspicion or self.passing

    @property
    def suspicion(self) -> Trouble | None:
        """The first critical Xid of the whole GPU that the driver has not spoken about."""
        return next((_by_xid(one.xid) for one in self.recent if one.is_critical and one.place is None), None)

    def trouble_of_instance(self, instance: MigInstance) -> Trouble | None:
        suspected = [InstanceMark(one.place, _by_xid(one.xid)) for one in self.recent if one.place and one.is_critical]
        every = (*self.instance_marks, *suspected)
        return next((one.trouble for one in every if one.place.covers(instance)), None)

    @property
    def is_unreachable(self) -> bool:
        """Away or unreadable: a new reader may reach it."""
        return self.is_away or (self.passing is not None and self.passing.reason == GpuReason.GPU_UNREADABLE)

    def energy_seconds(self, not_supported: tuple[str, ...]) -> float | None:
        """How often its energy counter has to be read; None if another value already shows a reset."""
        if self.read.recovery_action in RESETS or self.read.ecc_uncorrected:
            return None
        if _counts(self):
            return ENERGY_ALWAYS
        if "recoveryAction" not in not_supported:
            return None
        return ENERGY_ALWAYS if self.trouble is not None else ENERGY_SELDOM


class HealthRules(Struct, frozen=True):
    """harmless_xids: all others take a GPU out of service.

    critical_by_setting, harmless_by_setting: Xids about which the driver's word does not count. effects: driver_troubles.EFFECTS.
    """

    harmless_xids: frozenset[int] = frozenset(APPLICATION_XIDS)
    ecc_errors: EccErrors = "driver"
    critical_by_setting: frozenset[int] = frozenset()
    harmless_by_setting: frozenset[int] = frozenset()
    effects: Mapping[str, Effect] = EFFECTS


# the command in stored messages; `addressed` adds the GPU and the program when a message is shown
_CLEAR = "nodedevice-agent gpu clear"
_REMEDY = f"reset it (nvidia-smi --gpu-reset) or reboot; if it is healthy: {_CLEAR}"
LOST = Trouble(GpuReason.GPU_LOST, "the GPU has fallen off the bus or no longer responds; reset it, or reboot the node")
GONE = Trouble(
    GpuReason.GPU_GONE,
    f"the driver no longer lists this GPU; it is used again when it is back; if it was removed for good: {_CLEAR}",
)
SILENT = Trouble(GpuReason.GPU_UNREADABLE, "the driver lists a GPU without a readable UUID; see the kernel log")
ECC = Trouble(GpuReason.ECC_UNCORRECTABLE, f"uncorrectable ECC errors in its memory; {_REMEDY}")
ECC_BEFORE = Trouble(
    GpuReason.ECC_BEFORE_START,
    f"uncorrectable ECC errors in its memory since the driver was loaded, before the agent ran; {_REMEDY}",
)


def addressed(message: str, program: str, uuid: str) -> str:
    """Adds this GPU to the command, ready to run. program: with its prefix if it runs in a pod."""
    return message.replace(_CLEAR, f"{program} gpu clear {uuid}")


def with_xid(health: GpuHealth, xid: int, rules: HealthRules, place: Place | None = None) -> GpuHealth:
    """The driver reported this Xid, of the whole GPU or of an instance. Only the first mark counts: later ones follow from it."""
    is_critical = xid not in rules.harmless_xids
    one = RecentXid(xid, place, is_critical, xid in rules.harmless_by_setting)
    if xid in rules.critical_by_setting or (is_critical and len(health.recent) >= _MAX_RECENT):
        return _marked_by(health, one)
    if one in health.recent or len(health.recent) >= _MAX_RECENT:
        return health
    marked_at = _read_before(health) if is_critical else health.marked_at
    return replace(health, recent=(*health.recent, one), marked_at=marked_at)


def with_ecc_event(health: GpuHealth, rules: HealthRules) -> GpuHealth:
    return _marked(health, ECC) if _ecc_marks(health, rules, health.read.recovery_action) else health


def with_reading(health: GpuHealth, reading: Reading, rules: HealthRules) -> tuple[GpuHealth, str]:
    """The GPU was read. Returns its health, and what showed a reset ("" without one)."""
    if reading.hung_call:
        message = f"{reading.hung_call} hangs for this GPU; see the kernel log"
        return replace(health, passing=Trouble(GpuReason.DRIVER_HANGS, message)), ""
    if reading.failure:
        message = f"the UUID of the GPU can no longer be read ({reading.failure}); see the kernel log"
        return replace(health, passing=Trouble(GpuReason.GPU_UNREADABLE, message)), ""
    if reading.is_lost:
        return away(health, LOST), ""
    how = _reset_seen(health, reading)
    health = cleared(health) if how else _with_ecc(health, reading, rules)
    health = _with_conditions(_settled(_excused(health, reading), reading), reading, rules)
    read = _merged(health.read, reading)
    return replace(health, is_away=False, read=read, marked_at=_baseline(health, read)), how


def away(health: GpuHealth, trouble: Trouble) -> GpuHealth:
    """LOST: it no longer responds. GONE: the driver no longer lists it."""
    return replace(health, passing=trouble, is_away=True)


def silent(health: GpuHealth) -> GpuHealth:
    """Hides passing troubles: the GPU may be the one whose UUID cannot be read."""
    return replace(health, passing=SILENT)


def cleared(health: GpuHealth) -> GpuHealth:
    """An administrator marked it as healthy. What the driver reports still counts."""
    return replace(health, mark=None, marked_at=Reading(), recent=(), instance_marks=())


def with_instances(health: GpuHealth, instances: Collection[MigInstance]) -> GpuHealth:
    """Its current MIG instances: drops the marks of removed instances."""
    kept = tuple(one for one in health.instance_marks if any(map(one.place.covers, instances)))
    return health if kept == health.instance_marks else replace(health, instance_marks=kept)


def _by_xid(xid: int) -> Trouble:
    return Trouble(f"Xid{xid}", f"{named(xid)}; {_REMEDY}")


def _counts(health: GpuHealth) -> bool:
    """Whether a reset may end a trouble of it: then the reading from before shows the reset."""
    return bool(health.mark or health.instance_marks or any(one.is_critical for one in health.recent))


def _read_before(health: GpuHealth) -> Reading:
    """The reading that shows a reset: from the first Xid on, the counters of that time."""
    return health.marked_at if _counts(health) else health.read


def _marked(health: GpuHealth, mark: Trouble) -> GpuHealth:
    return health if health.mark is not None else replace(health, mark=mark, marked_at=_read_before(health))


def _marked_by(health: GpuHealth, one: RecentXid) -> GpuHealth:
    """Marks only the MIG instance of the Xid; the GPU stays healthy."""
    if one.place is None:
        return _marked(health, _by_xid(one.xid))
    if any(known.place == one.place for known in health.instance_marks):
        return health
    marks = (*health.instance_marks, InstanceMark(one.place, _by_xid(one.xid)))
    return replace(health, instance_marks=marks, marked_at=_read_before(health))


def _baseline(health: GpuHealth, read: Reading) -> Reading:
    """The energy counter may be read only once the GPU is marked."""
    if not _counts(health) or health.marked_at.energy_mj is not None:
        return health.marked_at
    return replace(health.marked_at, energy_mj=read.energy_mj)


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


def _with_ecc(health: GpuHealth, reading: Reading, rules: HealthRules) -> GpuHealth:
    before, now = health.read.ecc_uncorrected, reading.ecc_uncorrected
    if not now or rules.ecc_errors == "ignore":
        return health
    if before is None:
        # the agent did not see the Xids that came with them
        return _marked(health, ECC_BEFORE)
    return _marked(health, ECC) if now > before and _ecc_marks(health, rules, reading.recovery_action) else health


def _ecc_marks(health: GpuHealth, rules: HealthRules, action: int | None) -> bool:
    """Whether a new ECC error makes the GPU unhealthy. Without an action in mode driver, the Xid that came with it decides."""
    if rules.ecc_errors != "driver":
        return rules.ecc_errors == "unhealthy"
    return action is None and not any(one.xid in ECC_XIDS for one in health.recent)


def _excused(health: GpuHealth, reading: Reading) -> GpuHealth:
    """Whether a newly requested action follows from Xids alone that a setting says are harmless."""
    action = reading.recovery_action or NO_RECOVERY
    if action == (health.read.recovery_action or NO_RECOVERY):
        return health
    is_excused = health.recent and all(one.is_excused for one in health.recent)
    return replace(health, excused=action if is_excused else NO_RECOVERY, cause="")


def _settled(health: GpuHealth, reading: Reading) -> GpuHealth:
    """Apply the second reading of the driver's action to recent Xids. Without an Xid, a reading counts at once."""
    unsettled, action = reading.unsettled, reading.recovery_action or NO_RECOVERY
    waiting = tuple(one for one in health.recent if unsettled is None or one.xid in unsettled)
    settled = [one for one in health.recent if one not in waiting]
    if settled or not waiting or action == NO_RECOVERY:
        health = replace(health, requested=action)
    if reading.recovery_action is None:
        for one in settled:
            health = _marked_by(health, one) if one.is_critical else health
    health = replace(health, recent=waiting)
    if action == NO_RECOVERY or not settled:
        return health
    first = min(settled, key=lambda one: (one.is_excused, not one.is_critical))
    return health if first.is_excused else replace(health, excused=NO_RECOVERY, cause=health.cause or named(first.xid))


def _with_conditions(health: GpuHealth, reading: Reading, rules: HealthRules) -> GpuHealth:
    action = NO_RECOVERY if health.requested == health.excused else health.requested
    every = list(found(replace(reading, recovery_action=action), rules.effects, health.cause))
    passing = next((trouble for trouble, effect in every if effect == "unhealthy"), None)
    notes = tuple(trouble for trouble, effect in every if effect == "report")
    return replace(health, passing=passing, notes=notes)


def _has_risen(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _merged(before: Reading, after: Reading) -> Reading:
    """Keep the last value of a counter that could not be read this time."""
    return Reading(
        energy_mj=before.energy_mj if after.energy_mj is None else after.energy_mj,
        ecc_uncorrected=before.ecc_uncorrected if after.ecc_uncorrected is None else after.ecc_uncorrected,
        recovery_action=before.recovery_action if after.recovery_action is None else after.recovery_action,
    )
