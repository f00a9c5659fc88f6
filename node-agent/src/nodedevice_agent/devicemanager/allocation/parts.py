"""Parts of physical devices by their IDs: the counts for a planner, the IDs of its plan, and the choices of a container."""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct
from nodedevice_api.parts import Choice, PartRules, Placement
from nodedevice_kube.planner import Need, Parts, Planner

from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, part_number


class Parents:
    """A resource's physical devices for a pod. reusable: IDs of its init containers, not in `free`. used: parents of its parts."""

    def __init__(
        self, listed: ListedDevices, free: Iterable[str], reusable: Iterable[str] = (), used: Iterable[str] = ()
    ) -> None:
        self._rules = listed.part_rules or PartRules()
        self._free_ids = _by_parent(listed.devices, free)
        self._reusable_ids = _by_parent(listed.devices, reusable)
        # the parts of one have its NUMA nodes
        examples = ((parent, listed.devices[ids[0]]) for parent, ids in listed.by_parent.items())
        self.planner = Planner(
            self._rules,
            {parent: len(ids) for parent, ids in self._free_ids.items()},
            {parent: len(ids) for parent, ids in self._reusable_ids.items()},
            used,
            {parent: example.numa_nodes for parent, example in examples if example.numa_nodes},
        )

    def device_ids(self, parts: Parts) -> tuple[str, ...]:
        """Choose parts of these physical devices: parts of init containers first, then the lowest numbers."""
        found: list[str] = []
        for parent, count in parts.items():
            ids = [*_by_number(self._reusable_ids, parent), *_by_number(self._free_ids, parent)]
            found += ids[:count]
        return tuple(found)

    def in_order(self, count: int) -> tuple[str, ...]:
        """Sort all free parts, with the preferred source of `count` parts first; for the placement ANY."""
        need, is_binpack = Need(count), self._rules.choice is Choice.BINPACK
        parents = sorted(self._free_ids, key=lambda parent: self.planner.preference(need, parent, count))
        if is_binpack:
            # a device with enough parts comes before fuller ones without
            parents.sort(key=lambda parent: len(self._free_ids[parent]) < count)
        ids = [_by_number(self._free_ids, parent) for parent in parents]
        if is_binpack:
            return tuple(i for of_parent in ids for i in of_parent)
        # one at a time, from the physical device with the most parts left
        turns = [
            (turn - len(of_parent), place, i) for place, of_parent in enumerate(ids) for turn, i in enumerate(of_parent)
        ]
        return tuple(i for _, _, i in sorted(turns))


class Choices(Struct, frozen=True):
    """The choices of a container, for its NUMA nodes: `count` of these devices. Fields as in topology.hints."""

    devices: Mapping[str, Device]
    count: int
    free: tuple[str, ...]
    reusable: tuple[str, ...] = ()


def are_linked(listed: ListedDevices) -> bool:
    """Whether a container takes linked parts by a rule."""
    return listed.part_rules is not None and listed.part_rules.placement is not Placement.ANY


def to_align(listed: ListedDevices, count: int, free: tuple[str, ...], reusable: tuple[str, ...]) -> Choices:
    """The physical devices of linked parts, as one container takes one of them, or several."""
    rules = listed.part_rules or PartRules()
    free_of, reusable_of = (Counter(listed.devices[i].parent for i in ids) for ids in (free, reusable))
    least = count if rules.placement is Placement.SAME_PARENT else 1
    examples = {p: listed.devices[ids[0]] for p, ids in listed.by_parent.items() if len(ids) >= least}
    if rules.placement is Placement.DISTINCT_PARENTS:
        return Choices(examples, count, tuple(sorted(free_of.keys() - reusable_of.keys())), tuple(sorted(reusable_of)))
    fitting = sorted(p for p in examples if free_of[p] + reusable_of[p] >= count)
    # a reusable part comes before any other
    return Choices(examples, 1, tuple(filter(reusable_of.get, fitting)) or tuple(fitting))


def _by_parent(devices: Mapping[str, Device], device_ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device_id in device_ids:
        found.setdefault(devices[device_id].parent, []).append(device_id)
    return found


def _by_number(ids: Mapping[str, list[str]], parent: str) -> list[str]:
    return sorted(ids.get(parent, ()), key=part_number)
