"""Builds the pools of this node's DRA drivers from their slices: the current generation, missing slices, duplicates. Pure.

The newest generation counts once it is complete; until then the last complete one is shown. The scheduler allocates nothing
from a pool with another number of slices than its count, a device or a set of counters in two slices, or an unknown counter.
Source: k8s.io/dynamic-resource-allocation structured/internal, GatherPools @ 1.37.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.dra.devices import Device, PoolKey, Slice

# A pool of 4,096 devices, the most that a NodeDevice lists, has 64 slices if a device has taints.
MAX_SLICES_OF_DRIVER: Final = 128
MAX_SLICES: Final = 256
# slices that each driver may have in any case
MIN_SLICES_OF_DRIVER: Final = 8
MAX_SLICES_IN_ALL: Final = 384
# attributes of all devices: some 10 MB
MAX_ATTRIBUTES: Final = 65_536
# counters of all sets and devices: some 10 MB
MAX_COUNTERS: Final = 32_768
# the most names in a message
MAX_NAMED: Final = 3


class Pool(Struct, frozen=True):
    """A pool with the devices of its last complete generation, or of the existing slices before the first one.

    devices: by name, in order. omitted: the number of devices beyond the limit of a slice. missing, surplus: slices of the
    newest generation, compared with its own count. shared: the amount of each counter of each shared set.
    twice: devices in two slices. uncounted: consumed counters that no slice has, and sets in two slices.
    unread: slices with unknown devices; problem: why, for the first slice. Each lists the first few.
    """

    driver: str
    name: str
    generation: int
    devices: Mapping[str, Device]
    omitted: int = 0
    count: int = 1
    missing: int = 0
    surplus: int = 0
    is_whole: bool = True
    twice: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    problem: str = ""
    shared: Mapping[tuple[str, str], Decimal] = {}

    @property
    def key(self) -> PoolKey:
        return self.driver, self.name

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.surplus

    @property
    def is_valid(self) -> bool:
        return not self.twice and not self.uncounted


class Pools(dict[PoolKey, Pool]):
    """The pools of one node that have slices."""

    def __init__(self) -> None:
        super().__init__()
        self._slices: dict[str, Slice] = {}
        # the last state of pools without slices; a pool without slices for long is removed, and later slices form a new one
        self.former: dict[PoolKey, Pool] = {}

    def has_room(self, name: str, driver: str) -> bool:
        """Whether that slice is known, or one more of its driver may be."""
        if name in self._slices:
            return True
        own = sum(found.driver == driver for found in self._slices.values())
        most = MAX_SLICES_OF_DRIVER if len(self._slices) < MAX_SLICES else MIN_SLICES_OF_DRIVER
        return own < most and len(self._slices) < MAX_SLICES_IN_ALL

    def has_room_for_attributes(self, name: str) -> bool:
        others = (found.attribute_count for found in self._slices.values() if found.name != name)
        return sum(others) < MAX_ATTRIBUTES

    def has_room_for_counters(self, found: Slice) -> bool:
        others = (other.counted for other in self._slices.values() if other.name != found.name)
        return not found.counted or sum(others) + found.counted <= MAX_COUNTERS

    @property
    def bare(self) -> set[str]:
        """Names of slices whose attributes were dropped for lack of room."""
        return {found.name for found in self._slices.values() if not found.has_attributes}

    def put(self, found: Slice) -> set[PoolKey]:
        """Add or replace a slice. Returns the changed pools."""
        before = self._slices.get(found.name)
        self._slices[found.name] = found
        return self._composed({found.key} if before is None else {before.key, found.key})

    def remove(self, name: str) -> set[PoolKey]:
        """The slice is gone. Returns the changed pools."""
        found = self._slices.pop(name, None)
        return self._composed({found.key}) if found is not None else set()

    def names(self) -> set[str]:
        return {*self._slices}

    def _composed(self, keys: Iterable[PoolKey]) -> set[PoolKey]:
        changed: set[PoolKey] = set()
        for key in keys:
            slices = [found for found in self._slices.values() if found.key == key]
            before = self.get(key)
            after = composed(slices, before or self.former.pop(key, None))
            if after is not None:
                self[key] = after
            elif before is not None:
                # a kubelet that starts deletes all slices of its node, and they come again one by one
                self.former[key] = self.pop(key)
            if before != after:
                changed.add(key)
        return changed


def composed(slices: Sequence[Slice], before: Pool | None) -> Pool | None:
    """The pool of these slices; None without slices. slices: all of the pool."""
    if not slices:
        return None
    newest = max(found.generation for found in slices)
    current = sorted((found for found in slices if found.generation == newest), key=lambda found: found.name)
    usable, unread = [found for found in current if not found.problem], [found for found in current if found.problem]
    count = max(found.count for found in current)
    missing, surplus = max(count - len(usable), 0), max(len(current) - count, 0)
    shown = (
        before
        if missing and before is not None and before.is_whole
        else _of_slices(current[0], usable, is_whole=not missing)
    )
    return replace(
        shown,
        count=count,
        missing=missing,
        surplus=surplus,
        unread=tuple(found.name for found in unread[:MAX_NAMED]),
        problem=unread[0].problem if unread else "",
    )


def _of_slices(first: Slice, slices: Sequence[Slice], *, is_whole: bool) -> Pool:
    """first: any slice of the generation; `slices` may be empty."""
    devices: dict[str, Device] = {}
    where: dict[str, str] = {}
    twice: dict[str, str] = {}
    for found in slices:
        for device in found.devices:
            if device.name in where:
                twice[device.name] = f"{device.name} in {where[device.name]} and {found.name}"
            else:
                devices[device.name], where[device.name] = device, found.name
    shared = {(set_name, name): most for found in slices for set_name, name, most in found.counters}
    uncounted = _uncounted(slices, shared) if is_whole else ()
    return Pool(
        first.driver,
        first.pool,
        first.generation,
        {name: devices[name] for name in sorted(devices)},
        sum(found.omitted for found in slices),
        is_whole=is_whole,
        twice=tuple(twice[name] for name in sorted(twice)[:MAX_NAMED]),
        uncounted=tuple(islice(uncounted, MAX_NAMED)),
        shared=shared,
    )


def _uncounted(slices: Sequence[Slice], shared: Collection[tuple[str, str]]) -> Iterator[str]:
    """Sets of counters that two slices have, and counters that none has."""
    where: dict[str, str] = {}
    for found in slices:
        for set_name in dict.fromkeys(set_name for set_name, _, _ in found.counters):
            if set_name in where:
                yield f"{set_name} in {where[set_name]} and {found.name}"
            where[set_name] = found.name
    for found in slices:
        for device in found.devices:
            for set_name, name, _ in device.consumes:
                if (set_name, name) not in shared:
                    yield f"{name} of {set_name} for {device.name}"
