"""Which devices of one resource a container gets: its pod's own first, then near ones, then what the plugin advises.

Equal inputs give equal choices: where the kubelet takes any device of a set, here nodes with fewer devices come first (so that
big requests find the others whole), then lower node numbers, devices of that node alone, and IDs in order.
Source: kubelet device manager, filterByAffinity and devicesToAllocate @ 1.37.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from nodedevice_agent.devicemanager.devices import Device


@dataclass(frozen=True, slots=True)
class Selection:
    """taken: settled. pool: what the rest is taken from, the first ones first; a plugin's preferred may reorder it."""

    count: int
    taken: tuple[str, ...]
    pool: tuple[str, ...]

    @property
    def missing(self) -> int:
        return self.count - len(self.taken)

    def candidates(self) -> tuple[str, ...]:
        """What a plugin is asked to choose `count` of; `taken` must be among them."""
        return tuple(sorted((*self.taken, *self.pool)))

    def completed(self, preferred: Collection[str] = ()) -> tuple[str, ...]:
        """`count` device IDs: preferred is followed as far as it makes sense, the rest comes from the pool in order."""
        if not self.missing:
            return self.taken
        pool = self.pool
        if preferred:
            offered = frozenset(pool)
            pool = tuple(dict.fromkeys((*(i for i in preferred if i in offered), *pool)))
        return (*self.taken, *pool[: self.missing])


def select(
    devices: Mapping[str, Device],
    count: int,
    reusable: Iterable[str],
    free: Iterable[str],
    affinity: frozenset[int] | None,
) -> Selection:
    """How `count` devices are found, given at least as many of reusable and free ones.

    reusable, free: sorted and disjoint. affinity: NUMA nodes to take from first.
    """
    reusable, free = tuple(reusable), tuple(free)
    if affinity is None or not any(device.numa_nodes for device in devices.values()):
        return Selection(count, reusable[:count], free)
    near_first = sorted(reusable, key=lambda i: (not _is_near(devices.get(i), affinity), i))
    taken = tuple(near_first[:count])
    near, far = _split(devices, free, affinity)
    missing = count - len(taken)
    if missing < len(near):
        return Selection(count, taken, near)
    return Selection(count, (*taken, *near), far)


def near_count(devices: Mapping[str, Device], device_ids: Iterable[str], affinity: frozenset[int]) -> int:
    """How many of these are on one of these nodes."""
    return sum(_is_near(devices.get(device_id), affinity) for device_id in device_ids)


def _split(
    devices: Mapping[str, Device], free: tuple[str, ...], affinity: frozenset[int]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Devices on these nodes, and the others (those without any node last), each in order of preference."""
    # many devices, few different places
    crowds = Counter(devices[device_id].numa_nodes for device_id in free)
    crowd: Counter[int] = Counter()
    for nodes, number in crowds.items():
        crowd.update(dict.fromkeys(nodes, number))

    def place(node: int) -> tuple[bool, int, int]:
        return node not in affinity, crowd[node], node

    def preference(nodes: tuple[int, ...]) -> tuple[bool, tuple[bool, int, int], int]:
        # a device of several nodes stands with the first of them, behind those that are of use there alone
        return not nodes, min(map(place, nodes), default=(True, 0, 0)), len(nodes)

    rank = {nodes: preference(nodes) for nodes in crowds}
    # among equals the order of IDs stays
    ordered = sorted(free, key=lambda device_id: rank[devices[device_id].numa_nodes])
    near = sum(number for nodes, number in crowds.items() if not affinity.isdisjoint(nodes))
    return tuple(ordered[:near]), tuple(ordered[near:])


def _is_near(device: Device | None, affinity: frozenset[int]) -> bool:
    return device is not None and not affinity.isdisjoint(device.numa_nodes)
