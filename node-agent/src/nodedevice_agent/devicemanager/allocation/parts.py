"""Chooses the physical devices whose parts the containers of a pod get, by the rules that their device plugin has given.

A plan is for all containers of the pod that lack parts of the resource, so that what one takes leaves enough for the others. First
each container in turn takes what is preferred; if that leaves one of them without, other ways are tried, up to a bound.
Equal inputs give equal plans. Where parts of init containers can be reused, the kubelet's rule holds: they come first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement

from nodedevice_agent.devicemanager.pods import ContainerKind
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, part_number

# Of a search for a plan: physical devices examined, and containers. It ends within a few milliseconds.
_MAX_EXAMINED = 2000
_MAX_SEARCHED = 32

# By ID of a physical device: how many of its parts.
Parts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Need:
    """What one container requests. affinity: NUMA nodes to take from first, None for any; is_strict: from these alone."""

    count: int
    kind: ContainerKind = ContainerKind.APP
    affinity: frozenset[int] | None = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Misfit:
    """index: of the need that cannot be met. most: free on one physical device; with DISTINCT_PARENTS, the number of these."""

    index: int
    most: int


class Parents:
    """The physical devices of one resource, and what one pod could have of each.

    free: IDs that may be allocated. reusable: those of the pod's init containers, none of them in `free`. used: physical devices of
    which containers of the pod have parts.
    """

    def __init__(
        self, listed: ListedDevices, free: Iterable[str], reusable: Iterable[str] = (), used: Iterable[str] = ()
    ) -> None:
        self.rules = listed.part_rules or PartRules()
        self._listed = listed
        self._free_ids = _by_parent(listed.devices, free)
        self._reusable_ids = _by_parent(listed.devices, reusable)
        self._free = {parent: len(ids) for parent, ids in self._free_ids.items()}
        self._reusable = {parent: len(ids) for parent, ids in self._reusable_ids.items()}
        self._used = Counter(used)
        self._ids = sorted(self._free.keys() | self._reusable.keys())

    # -- a plan -------------------------------------------------------------------------------------------------------

    def plan(self, needs: Sequence[Need]) -> list[Parts] | Misfit:
        """The physical devices of each need, for a placement other than ANY."""
        found = self._preferred(needs)
        if isinstance(found, list) or not 1 < len(needs) <= _MAX_SEARCHED:
            return found
        return self._search(needs, 0, [_MAX_EXAMINED]) or found

    def device_ids(self, parts: Parts) -> tuple[str, ...]:
        """Which parts of these physical devices: those of init containers first, then the lowest numbers."""
        found: list[str] = []
        for parent, count in parts.items():
            ids = [*_by_number(self._reusable_ids, parent), *_by_number(self._free_ids, parent)]
            found += ids[:count]
        return tuple(found)

    def in_order(self, count: int) -> tuple[str, ...]:
        """All free parts, those that `count` of them are to be taken from first; for the placement ANY."""
        need = Need(count)
        parents = sorted(self._free, key=lambda parent: self._preference(need, parent, count))
        if self.rules.choice is Choice.BINPACK:
            # one that has enough comes before fuller ones that have not
            parents.sort(key=lambda parent: self._free[parent] < count)
        ids = [_by_number(self._free_ids, parent) for parent in parents]
        if self.rules.choice is Choice.BINPACK:
            return tuple(i for of_parent in ids for i in of_parent)
        # one at a time, from the physical device that has the most left
        turns = [
            (turn - len(of_parent), place, i) for place, of_parent in enumerate(ids) for turn, i in enumerate(of_parent)
        ]
        return tuple(i for _, _, i in sorted(turns))

    def _preferred(self, needs: Sequence[Need]) -> list[Parts] | Misfit:
        """Each need in turn takes what is preferred."""
        found: list[Parts] = []
        undo: list[tuple[str, int, int]] = []
        try:
            for index, need in enumerate(needs):
                parts = next(self._choices(needs, index), None)
                if parts is None:
                    return Misfit(index, self._most())
                undo += self._take(need, parts)
                found.append(parts)
            return found
        finally:
            self._put_back(found, undo)

    def _search(self, needs: Sequence[Need], index: int, budget: list[int]) -> list[Parts] | None:
        if index == len(needs):
            return []
        for parts in self._choices(needs, index):
            budget[0] -= len(self._ids)
            if budget[0] < 0:
                return None
            undo = self._take(needs[index], parts)
            later = self._search(needs, index + 1, budget)
            self._put_back([parts], undo)
            if later is not None:
                return [parts, *later]
        return None

    def _choices(self, needs: Sequence[Need], index: int) -> Iterator[Parts]:
        """What could be taken for a need now, preferred first. Of physical devices that are alike only one is tried."""
        need, whole = needs[index], _most_at_once(needs[index:])
        least = need.count if self.rules.placement is Placement.SAME_PARENT else 1
        able = [parent for parent in self._ids if self.room(parent) >= least]
        if need.is_strict:
            able = [parent for parent in able if self._is_near(parent, need)]
        able.sort(key=lambda parent: self._preference(need, parent, whole))
        if self.rules.placement is Placement.SAME_PARENT:
            alike = {self._state(parent): parent for parent in reversed(able)}
            yield from ({parent: need.count} for parent in able if alike[self._state(parent)] == parent)
        elif len(able) >= need.count:
            yield dict.fromkeys(able[: need.count], 1)
            # what leaves the most to the others
            yield dict.fromkeys(sorted(able, key=self.room, reverse=True)[: need.count], 1)

    def _preference(self, need: Need, parent: str, whole: int) -> tuple[bool, int, int, int, str]:
        """For sorting: near ones, those with reusable parts, then by the rules. whole: what the pod lacks, all in all.

        An init container takes its parts where the others can reuse them.
        """
        reused, free = min(self._reusable.get(parent, 0), need.count), self._free.get(parent, 0)
        company = 0
        if self.rules.containers is PodPlacement.APART:
            company = int(self._used[parent] > 0)
        elif self.rules.containers is PodPlacement.TOGETHER:
            company = 0 if self._used[parent] else 1 if self.room(parent) >= whole else 2
        elif need.kind is ContainerKind.INIT:
            company = int(self.room(parent) < whole)
        return (
            not self._is_near(parent, need),
            -reused,
            company,
            free if self.rules.choice is Choice.BINPACK else -free,
            parent,
        )

    def _take(self, need: Need, parts: Parts) -> list[tuple[str, int, int]]:
        """Returns what there was before."""
        before = [(parent, self._free.get(parent, 0), self._reusable.get(parent, 0)) for parent in parts]
        for parent, free, reusable in before:
            reused = min(parts[parent], reusable)
            fresh = parts[parent] - reused
            self._free[parent] = free - fresh
            self._reusable[parent] = reusable + (fresh if need.kind is ContainerKind.INIT else -reused)
        self._used.update(dict.fromkeys(parts, 1))
        return before

    def _put_back(self, taken: list[Parts], before: list[tuple[str, int, int]]) -> None:
        for parent, free, reusable in reversed(before):
            self._free[parent], self._reusable[parent] = free, reusable
        for parts in taken:
            self._used.subtract(dict.fromkeys(parts, 1))

    # -- reads --------------------------------------------------------------------------------------------------------

    def room(self, parent: str) -> int:
        """How many of its parts a container could have."""
        return self._free.get(parent, 0) + self._reusable.get(parent, 0)

    def _most(self) -> int:
        rooms = [self.room(parent) for parent in self._ids]
        if self.rules.placement is Placement.SAME_PARENT:
            return max(rooms, default=0)
        return sum(room > 0 for room in rooms)

    def _state(self, parent: str) -> tuple[int, int, bool, tuple[int, ...]]:
        free, reusable = self._free.get(parent, 0), self._reusable.get(parent, 0)
        return free, reusable, self._used[parent] > 0, self._example(parent).numa_nodes

    def _is_near(self, parent: str, need: Need) -> bool:
        return need.affinity is None or not need.affinity.isdisjoint(self._example(parent).numa_nodes)

    def _example(self, parent: str) -> Device:
        """One of its parts; they all have the NUMA nodes of the physical device."""
        return self._listed.devices[self._listed.by_parent[parent][0]]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a container chooses from, for its NUMA nodes: `count` of these devices. Fields as in topology.hints."""

    devices: Mapping[str, Device]
    count: int
    free: tuple[str, ...]
    reusable: tuple[str, ...] = ()


def to_align(listed: ListedDevices, count: int, free: tuple[str, ...], reusable: tuple[str, ...]) -> Choices:
    """Single devices where no rule links them; else their physical ones, as one container takes one of them, or several."""
    rules = listed.part_rules
    if rules is None or rules.placement is Placement.ANY:
        return Choices(listed.devices, count, free, reusable)
    free_of, reusable_of = (Counter(listed.devices[i].parent for i in ids) for ids in (free, reusable))
    least = count if rules.placement is Placement.SAME_PARENT else 1
    examples = {p: listed.devices[ids[0]] for p, ids in listed.by_parent.items() if len(ids) >= least}
    if rules.placement is Placement.DISTINCT_PARENTS:
        return Choices(examples, count, tuple(sorted(free_of.keys() - reusable_of.keys())), tuple(sorted(reusable_of)))
    fitting = sorted(p for p in examples if free_of[p] + reusable_of[p] >= count)
    # a reusable part comes before any other
    return Choices(examples, 1, tuple(filter(reusable_of.get, fitting)) or tuple(fitting))


def misfit_message(listed: ListedDevices, resource_name: str, count: int, most: int) -> str:
    """Why a container lacks parts: what it requests, and the most that it could have. most: as in Misfit."""
    rules = listed.part_rules or PartRules()
    if rules.placement is Placement.DISTINCT_PARENTS:
        needed = f"{count} of {resource_name} needed, each of another device, but {most} devices have one free"
        has_enough = len(listed.by_parent) >= count
        return needed if has_enough else f"{needed}; there are only {len(listed.by_parent)} devices"
    needed = f"{count} of {resource_name} needed on one device, but the most that are free on one are {most}"
    has_enough = any(len(ids) >= count for ids in listed.by_parent.values())
    return needed if has_enough else f"{needed}; no device has that many"


def _by_parent(devices: Mapping[str, Device], device_ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device_id in device_ids:
        found.setdefault(devices[device_id].parent, []).append(device_id)
    return found


def _by_number(ids: Mapping[str, list[str]], parent: str) -> list[str]:
    return sorted(ids.get(parent, ()), key=part_number)


def _most_at_once(needs: Iterable[Need]) -> int:
    """How many parts these containers have at one time, at the most."""
    stays = most = 0
    for need in needs:
        most = max(most, stays + need.count)
        stays += 0 if need.kind is ContainerKind.INIT else need.count
    return most
