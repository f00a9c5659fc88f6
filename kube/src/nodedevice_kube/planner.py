"""Decides whether the containers of a pod fit on a node's devices, and which physical device each gets parts of. Pure.

The agent, the scheduler extender and `kubectl nodedevice why` use it, so that they agree.
Devices without parts are a pool, as are parts of any physical device: only the number of free ones counts.
A plan covers all containers of the pod, so that each leaves enough for the others. First each container in turn takes the preferred
devices. If one then lacks parts, other ways are tried, up to a bound. Equal inputs give equal plans. Parts of init containers come
first if they can be reused, as in the kubelet.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

# Words of the rules that a device plugin gives for its parts. Source: nodedevice_api.parts.
SAME_PARENT: Final = "SameParent"
DISTINCT_PARENTS: Final = "DistinctParents"
_SPREAD: Final = "Spread"
_APART: Final = "Apart"
_TOGETHER: Final = "Together"

# bounds of a search: physical devices examined, and containers; it ends within a few milliseconds
_MAX_EXAMINED = 2000
_MAX_SEARCHED = 32
# Containers of one pod that request parts, and their product with the physical devices: each pair takes two microseconds. A larger
# pod never fits.
MOST_CONTAINERS = 128
MOST_PLANNED = 4096

_ALL_PERCENT = 100
_MOST_REMEMBERED = 4096

# By ID of a physical device: how many of its parts.
Parts = dict[str, int]


class Rules(Protocol):
    """How parts of physical devices are allocated. Unknown words have no effect."""

    @property
    def placement(self) -> str: ...
    @property
    def choice(self) -> str: ...
    @property
    def containers(self) -> str: ...


class Need(NamedTuple):
    """How many devices or parts one container requests. is_init: it ends before the others start, which reuse its devices.

    near: preferred NUMA nodes, or None; is_strict: no others. percent: of the multiprocessors of each physical device; 0 for no
    limit.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    is_init: bool = False
    container: str = ""
    near: frozenset[int] | None = None
    is_strict: bool = False
    percent: int = 0


class Misfit(NamedTuple):
    """index: of the need that does not fit. most: free on one physical device; with DISTINCT_PARENTS, the number of these; of a
    pool, free in all. excess: a sentence, if the plan is too large.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    most: int
    excess: str = ""


# What a physical device had before a need was met: its ID, free parts, reusable parts, percent left, percent of init containers.
_Before = tuple[str, int, int, int, int]


class Planner:
    """The physical devices of one resource, and what one pod could have of each.

    free: parts that can be allocated. reusable: further parts that its init containers have. used: devices of the pod's containers.
    percent_left: of the multiprocessors; without unlimited devices. promised: devices whose percent other pods get later, so that
    an init container's percent counts to the end.
    """

    def __init__(
        self,
        rules: Rules,
        free: Mapping[str, int],
        reusable: Mapping[str, int] | None = None,
        used: Iterable[str] = (),
        numa_nodes: Mapping[str, tuple[int, ...]] | None = None,
        percent_left: Mapping[str, int] | None = None,
        promised: Iterable[str] = (),
    ) -> None:
        self.rules = rules
        self._is_single = rules.placement == SAME_PARENT
        self._free = dict(free)
        self._reusable = dict(reusable or {})
        self._used = Counter(used)
        self._numa_nodes = numa_nodes or {}
        self._percent_left = None if percent_left is None else dict(percent_left)
        self._promised = frozenset(promised)
        # percent of ended init containers whose parts others take over
        self._percent_of_init: Counter[str] = Counter()
        self._ids = sorted(self._free.keys() | self._reusable.keys())

    # -- a plan -------------------------------------------------------------------------------------------------------

    def plan(self, needs: Sequence[Need]) -> list[Parts] | Misfit:
        """Return the physical devices of each need; no entries for a pool."""
        if is_pool(self.rules):
            index = first_short(needs, total := sum(map(self.room, self._ids)))
            return [{} for _ in needs] if index is None else Misfit(index, total)
        if excess := self._excess(len(needs)):
            return Misfit(0, 0, excess)
        wholes = _most_at_once_from(needs)
        found = self._preferred(needs, wholes)
        if isinstance(found, list) or len(needs) > _MAX_SEARCHED:
            return found
        return self._search(needs, wholes, 0, [_MAX_EXAMINED]) or found

    def _excess(self, containers: int) -> str:
        if containers > MOST_CONTAINERS:
            return f"{containers} containers of the pod ask for parts, and {MOST_CONTAINERS} may"
        if containers > 1 and containers * len(self._ids) > MOST_PLANNED:
            most = max(MOST_PLANNED // len(self._ids), 1)
            return f"{containers} containers of the pod ask for parts of {len(self._ids)} devices, and {most} may"
        return ""

    def problem(self, resource: str, needs: Sequence[Need], misfit: Misfit) -> str:
        """Explain the misfit: a sentence, and after a semicolon the numbers of the node."""
        if misfit.excess:
            return f"{resource}: {misfit.excess}"
        need, most = needs[misfit.index], misfit.most
        if found := _shortage(resource, self.rules, needs, [*map(self.room, self._ids)]):
            return found
        if not self._is_single:
            return _too_few_devices(resource, need.count, most)
        text = f"no device has {need.count} of {resource} free"
        if most >= need.count:
            return f"{text} and {need.percent} percent of its multiprocessors left"
        return f"{text} for container {need.container} besides the other containers of its pod; the most is {most}"

    def can_take(self, needs: Sequence[Need], wanted: Sequence[Parts]) -> bool:
        """Whether these physical devices, one entry for each need, meet all needs by the rules."""
        taken: list[_Before] = []
        done: list[Parts] = []
        try:
            for need, parts in zip(needs, wanted, strict=True):
                has_all = all(self._has(parent, count, need) for parent, count in parts.items())
                if not (has_all and obeys(self.rules, need, parts)):
                    return False
                taken += self._take(need, parts)
                done.append(parts)
            return True
        finally:
            self._put_back(done, taken)

    def _preferred(self, needs: Sequence[Need], wholes: Sequence[int]) -> list[Parts] | Misfit:
        """Give each need in turn its preferred devices. wholes: for each, the parts that it and later needs have at one time."""
        found: list[Parts] = []
        undo: list[_Before] = []
        try:
            for index, need in enumerate(needs):
                parts = next(self._choices(need, wholes[index]), None)
                if parts is None:
                    rooms = [self.room(parent) for parent in self._ids]
                    return Misfit(index, max(rooms, default=0) if self._is_single else sum(room > 0 for room in rooms))
                undo += self._take(need, parts)
                found.append(parts)
            return found
        finally:
            self._put_back(found, undo)

    def _search(
        self, needs: Sequence[Need], wholes: Sequence[int], index: int, budget: list[int]
    ) -> list[Parts] | None:
        if index == len(needs):
            return []
        for parts in self._choices(needs[index], wholes[index]):
            budget[0] -= len(self._ids)
            if budget[0] < 0:
                return None
            undo = self._take(needs[index], parts)
            later = self._search(needs, wholes, index + 1, budget)
            self._put_back([parts], undo)
            if later is not None:
                return [parts, *later]
        return None

    def _choices(self, need: Need, whole: int) -> Iterator[Parts]:
        """Yield choices for a need, preferred first. Of equal physical devices only one is tried."""
        least = need.count if self._is_single else 1
        able = [parent for parent in self._ids if self._has(parent, least, need)]
        able.sort(key=lambda parent: self.preference(need, parent, whole))
        if self._is_single:
            seen: set[object] = set()
            for parent in able:
                if (state := self._state(parent)) not in seen:
                    seen.add(state)
                    yield {parent: need.count}
        elif len(able) >= need.count:
            yield dict.fromkeys(able[: need.count], 1)
            # leaves the most to the others
            yield dict.fromkeys(sorted(able, key=self.room, reverse=True)[: need.count], 1)

    def preference(self, need: Need, parent: str, whole: int) -> tuple[bool, int, int, int, str]:
        """Return a sort key: near devices, then reusable parts, then the rules. whole: parts that the pod lacks in all.

        An init container takes parts that the others can reuse.
        """
        reused, free = min(self._reusable.get(parent, 0), need.count), self._free.get(parent, 0)
        company = 0
        if self.rules.containers == _APART:
            company = int(self._used[parent] > 0)
        elif self.rules.containers == _TOGETHER:
            company = 0 if self._used[parent] else 1 if self.room(parent) >= whole else 2
        elif need.is_init:
            company = int(self.room(parent) < whole)
        return (
            not self._is_near(parent, need),
            -reused,
            company,
            -free if self.rules.choice == _SPREAD else free,
            parent,
        )

    def _take(self, need: Need, parts: Parts) -> list[_Before]:
        """Returns the former state."""
        before = [
            (parent, self._free.get(parent, 0), self._reusable.get(parent, 0), *self._percents(parent))
            for parent in parts
        ]
        for parent, free, reusable, percent, of_init in before:
            reused = min(parts[parent], reusable)
            fresh = parts[parent] - reused
            self._free[parent] = free - fresh
            self._reusable[parent] = reusable + (fresh if need.is_init else -reused)
            if self._percent_left is not None:
                self._percent_left[parent] = percent - need.percent
                self._percent_of_init[parent] = of_init + (need.percent if need.is_init else 0)
        self._used.update(dict.fromkeys(parts, 1))
        return before

    def _put_back(self, taken: list[Parts], before: list[_Before]) -> None:
        for parent, free, reusable, percent, of_init in reversed(before):
            self._free[parent], self._reusable[parent] = free, reusable
            if self._percent_left is not None:
                self._percent_left[parent], self._percent_of_init[parent] = percent, of_init
        for parts in taken:
            self._used.subtract(dict.fromkeys(parts, 1))

    # -- reads --------------------------------------------------------------------------------------------------------

    def room(self, parent: str) -> int:
        return self._free.get(parent, 0) + self._reusable.get(parent, 0)

    def _has(self, parent: str, count: int, need: Need) -> bool:
        left, of_init = self._percents(parent)
        left += of_init if self._reusable.get(parent, 0) and parent not in self._promised else 0
        if self.room(parent) < count or (need.percent and need.percent > left):
            return False
        return not need.is_strict or self._is_near(parent, need)

    def _state(self, parent: str) -> tuple[int, int, int, int, bool, tuple[int, ...]]:
        free, reusable = self._free.get(parent, 0), self._reusable.get(parent, 0)
        return free, reusable, *self._percents(parent), self._used[parent] > 0, self._numa_nodes.get(parent, ())

    def _is_near(self, parent: str, need: Need) -> bool:
        return need.near is None or not need.near.isdisjoint(self._numa_nodes.get(parent, ()))

    def _percents(self, parent: str) -> tuple[int, int]:
        """Return the free percent of its multiprocessors, and the percent of the pod's init containers."""
        if self._percent_left is None:
            return _ALL_PERCENT, 0
        return self._percent_left.get(parent, 0), self._percent_of_init[parent]


def problem(
    resource: str,
    rules: Rules,
    needs: Sequence[Need],
    free: Mapping[str, int],
    percent_left: Mapping[str, int] | None = None,
    promised: Iterable[str] = (),
) -> str:
    """Explain why a pod with these needs does not fit; "" if it fits. Arguments: as of Planner."""
    rooms = free.values()
    if (found := _shortage(resource, rules, needs, rooms)) or is_pool(rules):
        return found
    if percent_left is None and is_enough(rules, needs, max(rooms, default=0)):
        return ""
    planner = Planner(rules, free, percent_left=percent_left, promised=promised)
    plan = planner.plan(needs)
    return planner.problem(resource, needs, plan) if isinstance(plan, Misfit) else ""


def is_enough(rules: Rules, needs: Iterable[Need], most: int) -> bool:
    """Whether one physical device meets all needs. This is the usual case, and quick to decide."""
    return rules.placement == SAME_PARENT and at_once(needs) <= most


def _shortage(resource: str, rules: Rules, needs: Sequence[Need], rooms: Collection[int]) -> str:
    """Explain a shortage that no plan can avoid: one container is too large, or the sum is."""
    largest = max((need.count for need in needs), default=0)
    if rules.placement == SAME_PARENT and largest > (most := max(rooms, default=0)):
        return too_few_on_one(resource, largest, most)
    if rules.placement == DISTINCT_PARENTS and largest > (most := sum(room > 0 for room in rooms)):
        return _too_few_devices(resource, largest, most)
    whole, total = at_once(needs), sum(rooms)
    return f"{whole} of {resource} needed, and {total} are free" if whole > total else ""


@lru_cache(_MOST_REMEMBERED)
def too_few_on_one(resource: str, count: int, most: int) -> str:
    """Cached, as many nodes share the words."""
    return f"no device has {count} of {resource} free; the most is {most}"


def _too_few_devices(resource: str, count: int, most: int) -> str:
    return f"fewer than {count} devices have one of {resource} free; the most is {most}"


def is_pool(rules: Rules) -> bool:
    return rules.placement not in (SAME_PARENT, DISTINCT_PARENTS)


def obeys(rules: Rules, need: Need, parts: Mapping[str, int]) -> bool:
    """Whether these are as many parts, of as many physical devices, as container and rules want."""
    if sum(parts.values()) != need.count:
        return False
    return is_pool(rules) or len(parts) == (1 if rules.placement == SAME_PARENT else need.count)


def at_once(needs: Iterable[Need]) -> int:
    """Return the highest number of parts that the pod has at one time."""
    stays = most = 0
    for need in needs:
        most = max(most, stays + need.count)
        stays += 0 if need.is_init else need.count
    return most


def first_short(needs: Iterable[Need], room: int) -> int | None:
    """Return the index of the first need that a pool cannot meet, or None. room: free and reusable devices."""
    stays = 0
    for index, need in enumerate(needs):
        if stays + need.count > room:
            return index
        stays += 0 if need.is_init else need.count
    return None


def _most_at_once_from(needs: Sequence[Need]) -> list[int]:
    """Return the highest number of parts at one time, from each container on."""
    found, most = [], 0
    for need in reversed(needs):
        most = max(need.count, most + (0 if need.is_init else need.count))
        found.append(most)
    return found[::-1]
