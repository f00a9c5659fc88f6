"""NUMA alignment: which NUMA nodes could serve each resource (hints), and the policy's decision for all resources (merge).

Independent of pods; chooses no device. Sets of NUMA nodes are bit masks. A hint is preferred when no smaller set of nodes
could serve the request if every device were free; a larger set that is needed only because devices are in use is not preferred.
Source: kubelet topologymanager and devicemanager/topology_hints.go @ 1.37. The kubelet iterates over every combination of
hints (255 to the power of the resources on 8 nodes); here hints with the same nodes are merged first, with the same result.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, reduce
from itertools import combinations

from nodedevice_agent.devicemanager.devices import Device

# Every set of nodes is examined, so their number has the kubelet's bound.
MAX_NUMA_NODES = 8


class TopologyPolicy(Enum):
    """What to do with a container whose devices cannot be near each other.

    NONE ignores topology. BEST_EFFORT takes the best available set of nodes. RESTRICTED rejects sets that are not preferred.
    SINGLE_NUMA_NODE rejects what does not fit on one node.
    """

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(Enum):
    """The devices to align: those of each container, or of the whole pod."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True)
class Topology:
    """numa_nodes: those of the machine, sorted; other nodes that a plugin reports are ignored."""

    policy: TopologyPolicy = TopologyPolicy.NONE
    scope: TopologyScope = TopologyScope.CONTAINER
    numa_nodes: tuple[int, ...] = (0,)

    @property
    def is_aligning(self) -> bool:
        return self.policy is not TopologyPolicy.NONE

    @property
    def is_strict(self) -> bool:
        """Whether pods that cannot be aligned are rejected."""
        return self.policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)


@dataclass(frozen=True, slots=True)
class Hint:
    """A set of nodes whose devices could meet the request. mask: NUMA nodes as bits, never 0."""

    mask: int
    is_preferred: bool


# Of one resource for one request. None: no preference. Empty: no set of nodes can meet it.
Hints = tuple[Hint, ...] | None


@dataclass(frozen=True, slots=True)
class Merged:
    """affinity: the NUMA nodes from which devices are taken first, None for any. is_admitted: by the policy."""

    affinity: frozenset[int] | None
    is_admitted: bool


ANYWHERE = Merged(None, True)


def hints(
    devices: Mapping[str, Device],
    count: int,
    free: Collection[str],
    reusable: Collection[str],
    numa_nodes: Iterable[int],
) -> Hints:
    """Every set of NUMA nodes that could serve `count` devices of one resource.

    devices: all that are listed, of any health. free: those that may be allocated. reusable: those that the pod has from its
    init containers, none of them in `free`; every set of nodes must include all of these.
    """
    if not any(device.numa_nodes for device in devices.values()):
        return None
    if len(free) + len(reusable) < count:
        return ()
    # many devices, few different sets of nodes: the rest works with counts for each set
    listed_at = Counter(device.numa_nodes for device in devices.values())
    free_at = Counter(devices[device_id].numa_nodes for device_id in free if device_id in devices)
    reusable_at = Counter(devices[i].numa_nodes for i in reusable if i in devices and devices[i].numa_nodes)
    known = frozenset(numa_nodes)
    hosting = known.intersection(node for nodes in listed_at for node in nodes)
    candidates = tuple(sorted(hosting or known))
    sets = _subsets(candidates)
    listed_on, free_on, reusable_on = (_touching(at, candidates, sets) for at in (listed_at, free_at, reusable_at))
    enough = (mask.bit_count() for mask, number in zip(sets, listed_on, strict=True) if number >= count)
    smallest = min(enough, default=len(candidates))
    placed = reusable_at.total()
    return tuple(
        Hint(mask, mask.bit_count() == smallest)
        for mask, number, reused in zip(sets, free_on, reusable_on, strict=True)
        if reused == placed and reused + number >= count
    )


def merge(topology: Topology, of_resources: Iterable[Hints]) -> Merged:
    """The decision for everything that is to be aligned: the narrowest set of nodes that all resources agree on."""
    preferences = [found for found in of_resources if found is not None]
    if not topology.is_aligning or not preferences:
        return ANYWHERE
    whole = _mask(topology.numa_nodes, frozenset(topology.numa_nodes))
    is_single = topology.policy is TopologyPolicy.SINGLE_NUMA_NODE
    agreed = frozenset.intersection(*(_preferred(found, is_single) for found in preferences))
    if agreed:
        best = min(agreed, key=_narrowness)
        # on one node there is nothing to align to
        return ANYWHERE if is_single and best == whole else Merged(_nodes(best), True)
    if topology.is_strict:
        return Merged(None, False)
    return Merged(_nodes(_compromise(preferences, whole)), True)


def _preferred(found: tuple[Hint, ...], is_single: bool) -> frozenset[int]:
    return frozenset(h.mask for h in found if h.is_preferred and not (is_single and h.mask.bit_count() > 1))


def _compromise(preferences: list[tuple[Hint, ...]], whole: int) -> int:
    """The set of nodes when resources do not agree: as many nodes as the most demanding resource needs, and no more."""
    possible = [[hint.mask for hint in found] for found in preferences if found]
    needed = max((min(mask.bit_count() for mask in masks) for masks in possible), default=0)
    reachable = reduce(lambda so_far, masks: {a & b for a in so_far for b in masks}, possible, {whole}) - {0}

    def distance(mask: int) -> tuple[bool, int, int]:
        size = mask.bit_count()
        return size > needed, abs(size - needed), mask

    return min(reachable, key=distance, default=whole)


@lru_cache(maxsize=64)
def _subsets(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Every set of nodes except the empty one, smaller sets first."""
    sizes = range(1, len(nodes) + 1)
    return tuple(sum(1 << node for node in some) for size in sizes for some in combinations(nodes, size))


def _touching(at: Counter[tuple[int, ...]], candidates: tuple[int, ...], sets: tuple[int, ...]) -> list[int]:
    """For each set of nodes, how many devices are on at least one of its nodes."""
    known = frozenset(candidates)
    places: Counter[int] = Counter()
    for nodes, number in at.items():
        places[_mask(nodes, known)] += number
    on = [0] * len(sets)
    for place, number in places.items():
        on = [have + number if mask & place else have for have, mask in zip(on, sets, strict=True)]
    return on


def _mask(nodes: Iterable[int], known: frozenset[int]) -> int:
    return sum(1 << node for node in known.intersection(nodes))


def _nodes(mask: int) -> frozenset[int]:
    return frozenset(node for node in range(mask.bit_length()) if mask >> node & 1)


def _narrowness(mask: int) -> tuple[int, int]:
    """Fewer nodes first, then those with lower numbers."""
    return mask.bit_count(), mask
