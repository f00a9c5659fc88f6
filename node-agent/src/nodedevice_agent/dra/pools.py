"""The pools of this node's DRA drivers, from their slices: which generation counts, what is missing, what is in two slices. Pure.

The newest generation counts once all its slices are there; until then the last one that was complete is shown. The scheduler gives
out nothing of a pool that has fewer slices than it says, or more, nor of one in which a device or a set of counters is twice, or a
device consumes of a counter that is nowhere.
Source: k8s.io/dynamic-resource-allocation structured/internal, GatherPools @ 1.37.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.dra.devices import Device, PoolKey, Slice

# A pool of 4,096 devices, of which a NodeDevice may list as many, has 64 slices where one has taints.
MAX_SLICES_OF_DRIVER: Final = 128
MAX_SLICES: Final = 256
# each driver may have so many, whatever others have
MIN_SLICES_OF_DRIVER: Final = 8
MAX_SLICES_IN_ALL: Final = 384
# of all devices: some 10 MB
MAX_ATTRIBUTES: Final = 65_536
# of all sets and devices: the same
MAX_COUNTERS: Final = 32_768
# in messages
MAX_NAMED: Final = 3


class Pool(Struct, frozen=True):
    """The devices are those of the last generation of which every slice was there; without one yet, those of the slices that are.

    devices: by name, in order. omitted: how many their slices have beyond what a slice may have. missing: slices of the newest
    generation. surplus: slices that it has beyond their number by its own word.
    twice: devices that are in two slices. uncounted: counters that devices consume and no slice has, and sets that two have.
    unread: slices whose devices are not known; problem: what these are, of the first. Of each the first few.
    shared: how much there is of each counter of each set that devices share.
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


class Pools:
    """Of one node. What is beyond the bounds of a node is counted, and left out."""

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._pools: dict[PoolKey, Pool] = {}
        # of those without slices: as they were
        self._former: dict[PoolKey, Pool] = {}
        # by slice: how many attributes its devices have
        self._attributes: dict[str, int] = {}
        # by slice: how many counters it has, and its devices consume
        self._counters: dict[str, int] = {}
        # names of slices without the attributes of their devices, as there is no room for them
        self.bare: set[str] = set()

    def __contains__(self, key: PoolKey) -> bool:
        return key in self._pools

    def __iter__(self) -> Iterator[Pool]:
        return iter([*self._pools.values()])

    def get(self, key: PoolKey) -> Pool | None:
        return self._pools.get(key)

    def has_room(self, name: str, driver: str) -> bool:
        """Whether that slice is known, or one more of its driver may be."""
        if name in self._slices:
            return True
        own = sum(found.driver == driver for found in self._slices.values())
        most = MAX_SLICES_OF_DRIVER if len(self._slices) < MAX_SLICES else MIN_SLICES_OF_DRIVER
        return own < most and len(self._slices) < MAX_SLICES_IN_ALL

    def has_room_for_attributes(self, name: str) -> bool:
        """Whether those of that slice may be kept, beside those of all others."""
        return sum(self._attributes.values()) - self._attributes.get(name, 0) < MAX_ATTRIBUTES

    def has_room_for_counters(self, found: Slice) -> bool:
        """Whether there is room for those of that slice, beside those of all others."""
        others = sum(self._counters.values()) - self._counters.get(found.name, 0)
        return not found.counted or others + found.counted <= MAX_COUNTERS

    def put(self, found: Slice) -> set[PoolKey]:
        """The slice, new or changed. Returns the pools that are others now."""
        before = self._slices.get(found.name)
        self._slices[found.name] = found
        (self.bare.discard if found.has_attributes else self.bare.add)(found.name)
        self._attributes[found.name] = sum(len(device.attributes) for device in found.devices)
        self._counters[found.name] = found.counted
        return self._composed({found.key} if before is None else {before.key, found.key})

    def remove(self, name: str) -> set[PoolKey]:
        """The slice is gone. Returns the pools that are others now, or gone."""
        self.bare.discard(name)
        self._attributes.pop(name, None)
        self._counters.pop(name, None)
        found = self._slices.pop(name, None)
        return self._composed({found.key}) if found is not None else set()

    def forget(self, key: PoolKey) -> None:
        """It has had no slices for so long that others of that name are another pool's."""
        self._former.pop(key, None)

    def names(self) -> set[str]:
        """Of all slices that are known."""
        return {*self._slices}

    def _composed(self, keys: Iterable[PoolKey]) -> set[PoolKey]:
        changed: set[PoolKey] = set()
        for key in keys:
            slices = [found for found in self._slices.values() if found.key == key]
            before = self._pools.get(key)
            after = composed(slices, before or self._former.pop(key, None))
            if after is not None:
                self._pools[key] = after
            elif before is not None:
                # a kubelet that starts deletes all slices of its node, and they come again one by one
                self._former[key] = self._pools.pop(key)
            if before != after:
                changed.add(key)
        return changed


def composed(slices: Sequence[Slice], before: Pool | None) -> Pool | None:
    """The pool of these slices, which are all that there are of it; None where there are none."""
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
    """first: any of that generation, where none of them can be used."""
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
