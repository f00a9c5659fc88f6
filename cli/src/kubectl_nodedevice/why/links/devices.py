"""Decides whether the devices of one resource on one node suffice for a pod, and why not. Pure.

A physical device has units: one, or its parts. A unit can be taken by a cordon, a fault, another use, its pool, a taint or a
holder. A cause is named if it alone takes so many units that the pod does not fit; without such a cause all of them are named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from nodedevice_kube import planner
from nodedevice_kube.planner import Need, at_once

from kubectl_nodedevice.cluster import Cordon, Device, NodeDevice, PartCounts, PartRules
from kubectl_nodedevice.device_state import Holder, cordon_words, cordons_of, holders_of, part_cordons
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.text import age, some
from kubectl_nodedevice.why.explanation import Obstacle

_IN_OTHER_USE: Final = "InOtherUse"
_NO_RULES: Final = PartRules()
CORDONED: Final = "DevicesCordoned"
BROKEN: Final = "DevicesBroken"
OTHER_USE: Final = "DevicesInOtherUse"
REFUSED: Final = "PoolRefused"
TAINTED: Final = "DevicesTainted"
HELD: Final = "DevicesHeld"
# a pod that ends only when the explained one is Ready
PREDECESSOR: Final = "HeldByPredecessor"
# codes in the order in which they are named
TAKERS: Final = (CORDONED, BROKEN, OTHER_USE, REFUSED, TAINTED, PREDECESSOR, HELD)


@dataclass(frozen=True, slots=True)
class Unit:
    """One physical device, or all of a node if its list is cut. taken: units by taker, which overlap.

    why: a few words by taker. cordon: the one in force, whose ID may be that of all devices.
    """

    id: str
    total: int
    free: int
    taken: Mapping[str, int] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    cordon: Cordon | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """needs: of the pod's containers. rules: of the node's parts."""

    resource: str
    needs: tuple[Need, ...] = (Need(1),)
    rules: PartRules = _NO_RULES

    @property
    def count(self) -> int:
        return at_once(self.needs)

    def problem(self, free: Iterable[int]) -> str:
        """Return why the free units of each physical device do not suffice; "" if they do."""
        rooms = {f"{number:04}": count for number, count in enumerate(free)}
        return planner.problem(self.resource, self.rules, self.needs, rooms).partition(";")[0]


def obstacles(node: str, wanted: Wanted, units: Sequence[Unit], as_of: str = "") -> tuple[Obstacle, ...]:
    """Return () if the pod fits on these devices."""
    if not wanted.problem(unit.free for unit in units):
        return ()
    if wanted.problem(unit.total for unit in units):
        # a cause that takes all units would stop a pod with one unit as well
        each_taken = [code for code in TAKERS if units and all(unit.total <= unit.taken.get(code, 0) for unit in units)]
        few = _too_few(node, wanted, units, as_of)
        return (few, *(_obstacle(code, node, wanted, units, as_of) for code in each_taken))
    takers = _takers(wanted, units)
    is_split = sum(unit.free for unit in units) >= wanted.count
    codes = list(dict.fromkeys("TooFewOnOneDevice" if is_split and each == HELD else each for each in takers))
    if is_split and not codes:
        codes = ["TooFewOnOneDevice"]
    return tuple(_obstacle(code, node, wanted, units, as_of) for code in codes)


def _takers(wanted: Wanted, units: Sequence[Unit]) -> list[str]:
    def alone(taker: str) -> bool:
        return bool(wanted.problem(unit.total - unit.taken.get(taker, 0) for unit in units))

    return [each for each in TAKERS if alone(each)] or [
        each for each in TAKERS if any(unit.taken.get(each) for unit in units)
    ]


def _too_few(node: str, wanted: Wanted, units: Sequence[Unit], as_of: str) -> Obstacle:
    total = sum(unit.total for unit in units)
    if total < wanted.count:
        fields = {"count": str(wanted.count)}
        return Obstacle("TooFewTogether", node, wanted.resource, f"it has {total}", as_of, fields)
    return _obstacle("TooFewOnOneDevice", node, wanted, units, as_of)


def _obstacle(code: str, node: str, wanted: Wanted, units: Sequence[Unit], as_of: str) -> Obstacle:
    if code == "TooFewOnOneDevice":
        best = max(units, key=lambda unit: unit.free)
        free = sum(unit.free for unit in units)
        detail = f"{free} are free together, at most {best.free} of {best.total} on one, {best.id}"
        problem = wanted.problem(unit.free for unit in units)
        return Obstacle(code, node, wanted.resource, detail, as_of, {"problem": problem[:1].upper() + problem[1:]})
    taken = [unit for unit in units if unit.taken.get(code, 0)]
    ids = [unit.id for unit in taken if unit.id]
    cordons = [unit.cordon for unit in taken if unit.cordon]
    fields = {"device": ids[0] if ids else "", **_options(cordons)}
    return Obstacle(code, node, wanted.resource, _described(code, taken, len(units)), as_of, fields)


def _options(cordons: Sequence[Cordon]) -> Mapping[str, str]:
    """Return the flags that lift these cordons. cordoned_by: the only person who set them."""
    ids = dict.fromkeys(each.id for each in cordons) or ["all"]
    names = typed(*(word for each in ids for word in ("--device", each)))
    by = {each.by for each in cordons}
    fields = {"device_options": f"{names} --take-over" if by else names}
    return {**fields, "cordoned_by": by.pop()} if len(by) == 1 and "" not in by else fields


def _described(code: str, taken: Sequence[Unit], total: int) -> str:
    """Join devices with the same reason, such as `gpu-0, gpu-1 by alice: ecc`."""
    by_why: dict[str, list[str]] = {}
    for unit in taken:
        by_why.setdefault(unit.why.get(code, ""), []).append(unit.id)
    named = {
        why: f"all {total}" if len(ids) == total > 2 else some([i for i in ids if i]) for why, ids in by_why.items()
    }
    return some([f"{names} {why}".strip() for why, names in named.items()])


def units_of(
    found: NodeDevice, now: datetime, *, is_away: bool = False, predecessors: frozenset[str] = frozenset()
) -> tuple[Unit, ...]:
    """Return the devices of a NodeDevice; its numbers if its list is cut, or lacks devices of a disconnected plugin.

    is_away: the plugin is disconnected, so its devices are not called unhealthy for that. predecessors: pods that end only when the
    explained one is Ready.
    """
    if found.devices_omitted or (len(found.devices) < (found.total or 0) and not _has_parts(found)):
        return (_counted(found, is_away),)
    holders = holders_of(found)
    units = (_unit(found, each, holders.get(each.id, []), now, is_away) for each in found.devices)
    return tuple(_apart(unit, holders.get(unit.id, []), predecessors) for unit in units)


def _apart(unit: Unit, holders: Sequence[Holder], predecessors: frozenset[str]) -> Unit:
    old = [each for each in holders if each.pod in predecessors]
    if not old:
        return unit
    others = [each for each in holders if each.pod not in predecessors]
    number = min(sum(each.parts or 1 for each in old), unit.taken[HELD])
    taken = {**unit.taken, PREDECESSOR: number, HELD: unit.taken[HELD] - number}
    return replace(
        unit, taken=taken, why={**unit.why, PREDECESSOR: described_holders(old), HELD: described_holders(others)}
    )


def _has_parts(found: NodeDevice) -> bool:
    return any(each.parts for each in found.devices)


def _counted(found: NodeDevice, is_away: bool) -> Unit:
    total = found.total or 0
    taken = {
        CORDONED: found.cordoned,
        BROKEN: 0 if is_away else total - found.healthy,
        HELD: found.allocated + found.releasing,
    }
    words = {CORDONED: "cordoned", BROKEN: "unhealthy", HELD: "in use"}
    why = {key: f"{taken[key]} of {total} {word}" for key, word in words.items()}
    free = max(total - taken[CORDONED] - taken[HELD], 0) if is_away else found.available
    return Unit("", total, free, taken, why)


def _unit(found: NodeDevice, device: Device, holders: Sequence[Holder], now: datetime, is_away: bool) -> Unit:
    # the cordon of its own ID before that of all devices
    cordon = min(cordons_of(found, device.id), key=lambda each: each.id != device.id, default=None)
    counts = device.parts or _whole(device, holders)
    parts = len(part_cordons(found, device))
    cordoned = counts.total if cordon else parts
    fault = OTHER_USE if device.reason == _IN_OTHER_USE else BROKEN
    # a disconnected plugin explains no single device
    is_well = is_away and not device.reason
    broken = 0 if is_well else counts.total - counts.healthy
    tainted = counts.total if any(each.is_exclusive for each in device.taints) else 0
    taken = {CORDONED: cordoned, fault: broken, HELD: counts.allocated, TAINTED: tainted}
    free = counts.total - counts.allocated if is_well else counts.available
    why = {
        CORDONED: cordon_words(cordon).removeprefix(": ").strip() if cordon else f"{parts} parts",
        fault: described_fault(device, now),
        HELD: described_holders(holders),
        TAINTED: some([f"{each.key}:{each.effect}" for each in device.taints]),
    }
    return Unit(device.id, counts.total, max(min(free, counts.total - cordoned - tainted), 0), taken, why, cordon)


def _whole(device: Device, holders: Sequence[Holder]) -> PartCounts:
    is_well = device.is_healthy and device.presence != "Missing"
    return PartCounts(1, int(is_well), int(bool(holders)), int(is_well and not holders))


def described_fault(device: Device, now: datetime) -> str:
    """Return words such as `(Xid79 for 12 min)`; of a device in other use the agent's message."""
    if device.reason == _IN_OTHER_USE and device.message:
        return f"({device.message})"
    reason = "NotListed" if device.presence == "Missing" and not device.reason else device.reason
    lasted = age(device.since, now)
    return f"({reason or 'unhealthy'}{f' for {lasted}' if lasted else ''})"


def described_holders(holders: Iterable[Holder]) -> str:
    """Return words such as `by default/train-1`."""
    names = sorted({f"{each.pod}{' (ending)' if each.allocation.releasing else ''}" for each in holders})
    return f"by {some(names)}" if names else ""
