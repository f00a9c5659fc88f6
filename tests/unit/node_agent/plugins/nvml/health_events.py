"""Events in the life of a GPU, and what its health is after them."""

from dataclasses import dataclass

import msgspec
from nodedevice_agent.plugins.nvml import health as h
from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules, Place

RULES = HealthRules()
WELL = Reading(energy_mj=1000, ecc_uncorrected=0, recovery_action=0)
# of a driver that reports no recovery action: our list alone counts
MUTE = Reading(energy_mj=1000, ecc_uncorrected=0)


def read(action: int | None, *unsettled: int, energy: int | None = None) -> Reading:
    return Reading(energy_mj=energy, ecc_uncorrected=0, recovery_action=action, unsettled=unsettled)


@dataclass(frozen=True)
class Xid:
    """place: of a MIG instance alone."""

    number: int
    place: Place | None = None


def after(health: GpuHealth, event: Xid | Reading | str, rules: HealthRules) -> GpuHealth:
    """Events by name: ecc (an ECC error), gone, silent (its UUID cannot be read), cleared (by an administrator)."""
    match event:
        case Xid(number, place):
            return h.with_xid(health, number, rules, place)
        case Reading():
            return h.with_reading(health, event, rules)[0]
        case "ecc":
            return h.with_ecc_event(health, rules)
        case "gone":
            return h.away(health, h.GONE)
        case _:
            return {"silent": h.silent, "cleared": h.cleared}[event](health)


def lived(*events: Xid | Reading | str, rules: HealthRules = RULES) -> GpuHealth:
    health = GpuHealth()
    for event in events:
        health = after(health, event, rules)
        # which changes of a record do not check: each field is of its type, as it is kept over a restart
        assert msgspec.convert(msgspec.to_builtins(health), GpuHealth) == health
    return health
