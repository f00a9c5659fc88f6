"""Selects a container's devices of one resource: its pod's own first, then near ones, then the plugin's preferred ones.

Equal inputs give equal selections. The kubelet takes any device of a set; the agent orders them: NUMA nodes with fewer devices
first, then lower node numbers, devices of that node alone, and IDs in order. This keeps larger nodes whole for large requests.

Source: kubelet device manager, filterByAffinity and devicesToAllocate @ 1.37.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice

from msgspec import Struct, structs

from nodedevice_agent.devicemanager.resources.devices import Device

# IDs by their set of NUMA nodes, each in order: many devices, few such sets
Crowds = Mapping[tuple[int, ...], Sequence[str]]


class Selection(Struct, frozen=True):
    """taken: chosen devices. pool: the rest comes from it, in order; a plugin's preferred devices come first."""

    count: int
    taken: tuple[str, ...]
    pool: tuple[str, ...]

    @property
    def missing(self) -> int:
        return self.count - len(self.taken)

    def candidates(self) -> tuple[str, ...]:
        """The available devices of a GetPreferredAllocation call; its result must include `taken`."""
        return tuple(sorted((*self.taken, *self.pool)))

    def completed(self, preferred: Collection[str] = ()) -> tuple[str, ...]:
        """`count` device IDs: taken ones, then preferred ones that are in the pool, then the pool in order."""
        if not self.missing:
            return self.taken
        if not preferred:
            return (*self.taken, *self.pool[: self.missing])
        chosen = dict.fromkeys(
            islice(filter(frozenset(self.pool).__contains__, dict.fromkeys(preferred)), self.missing)
        )
        others = (device_id for device_id in self.pool if device_id not in chosen)
        return (*self.taken, *chosen, *islice(others, self.missing - len(chosen)))

    def varied(
        self, devices: Mapping[str, Device], choose: Callable[[Sequence[tuple[int, ...]]], tuple[int, ...]], most: int
    ) -> "Selection":
        """With devices of other NUMA nodes. choose: one of up to `most` splits of the count; the first is the current selection.
        After so many sets of nodes, the others count as one, as splits of these alone would not be among the first.
        """
        alike = list(crowds(devices, self.pool).values())
        if len(alike) > most:
            alike[most:] = [list(chain.from_iterable(alike[most:]))]
        numbers = choose(tuple(islice(_splits(self.missing, tuple(map(len, alike))), most)))
        first = [i for ids, number in zip(alike, numbers, strict=True) for i in ids[:number]]
        return structs.replace(self, pool=tuple(dict.fromkeys((*first, *self.pool))))


def select(
    devices: Mapping[str, Device],
    count: int,
    reusable: Iterable[str],
    free: Iterable[str],
    affinity: frozenset[int] | None,
    at_nodes: Crowds | None = None,
) -> Selection:
    """reusable, free: sorted, disjoint and enough. affinity: preferred NUMA nodes. at_nodes: the free devices, if known."""
    reusable, free = tuple(reusable), tuple(free)
    if affinity is None:
        return Selection(count, reusable[:count], free)
    at_nodes = crowds(devices, free) if at_nodes is None else at_nodes
    if not any(at_nodes) and not any(device.numa_nodes for device in devices.values()):
        return Selection(count, reusable[:count], free)
    near_first = sorted(reusable, key=lambda i: (not _is_near(devices.get(i), affinity), i))
    taken = tuple(near_first[:count])
    near, far = _split(at_nodes, free, affinity)
    missing = count - len(taken)
    if missing < len(near):
        return Selection(count, taken, near)
    return Selection(count, (*taken, *near), far)


def near_count(devices: Mapping[str, Device], device_ids: Iterable[str], affinity: frozenset[int]) -> int:
    return sum(_is_near(devices.get(device_id), affinity) for device_id in device_ids)


def crowds(devices: Mapping[str, Device], device_ids: Iterable[str]) -> Crowds:
    found: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for device_id in device_ids:
        found[devices[device_id].numa_nodes].append(device_id)
    return found


def _split(at_nodes: Crowds, free: Sequence[str], affinity: frozenset[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Devices on these nodes, and the others (those without a node last), each in order of preference. free: all, in order."""
    crowd: Counter[int] = Counter()
    for nodes, device_ids in at_nodes.items():
        crowd.update(dict.fromkeys(nodes, len(device_ids)))

    def place(node: int) -> tuple[bool, int, int]:
        return node not in affinity, crowd[node], node

    def preference(nodes: tuple[int, ...]) -> tuple[tuple[bool, int, int], int]:
        # a device of several nodes is grouped with the first of them, after devices of that node alone
        return min(map(place, nodes)), len(nodes)

    near: list[str] = []
    far: list[str] = []
    for _, group in groupby(sorted(filter(None, at_nodes), key=preference), preference):
        sets = list(group)
        ids = at_nodes[sets[0]]
        if len(sets) > 1:
            equals = frozenset(chain.from_iterable(at_nodes[nodes] for nodes in sets))
            ids = [device_id for device_id in free if device_id in equals]
        (far if affinity.isdisjoint(sets[0]) else near).extend(ids)
    return tuple(near), (*far, *at_nodes.get((), ()))


def _is_near(device: Device | None, affinity: frozenset[int]) -> bool:
    return device is not None and not affinity.isdisjoint(device.numa_nodes)


def _splits(count: int, limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to take `count` devices, of each group up to its limit; as many as possible of the first group first."""
    numbers = _filled(count, limits)
    while True:
        yield tuple(numbers)
        later, room = 0, 0
        for index in reversed(range(len(limits))):
            if numbers[index] and later < room:
                break
            later, room = later + numbers[index], room + limits[index]
        else:
            return
        # the last group that can leave one device to later groups
        numbers[index] -= 1
        numbers[index + 1 :] = _filled(later + 1, limits[index + 1 :])


def _filled(count: int, limits: Iterable[int]) -> list[int]:
    numbers = []
    for limit in limits:
        numbers.append(min(count, limit))
        count -= numbers[-1]
    return numbers
