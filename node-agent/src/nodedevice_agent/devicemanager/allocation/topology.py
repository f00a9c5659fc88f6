"""NUMA alignment: the nodes that could serve each resource (hints), the policy's decision for all (merge), and its use on a pod.

Sets of NUMA nodes are bit masks. A hint is preferred when no smaller set of nodes could serve the request if every device were
free. Source: kubelet topologymanager and devicemanager/topology_hints.go @ 1.37. The kubelet iterates over every combination of
hints (255 to the power of the resources on 8 nodes); here hints with the same nodes are merged first, with the same result.

All resources of a container (of the pod, with scope pod) are decided together. Alignment is checked at each container and at each
choice. Other pods or a plugin's preferred devices may have taken devices that the rehearsal used.
Source: kubelet topologymanager scopes @ 1.37. Unlike in the kubelet, held devices are never checked again: the kubelet rejects a
running pod after a restart with a stricter policy.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache, reduce
from itertools import combinations
from operator import add, itemgetter

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.parts import are_linked, to_align
from nodedevice_agent.devicemanager.allocation.pod_allocation import PodAllocation
from nodedevice_agent.devicemanager.allocation.selection import near_count
from nodedevice_agent.devicemanager.pods import DeviceRequest
from nodedevice_agent.devicemanager.pods import pod_request as pod_request
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource

# Every set of nodes is examined, so their number has the kubelet's bound.
MAX_NUMA_NODES = 8


class TopologyPolicy(Enum):
    """NONE ignores topology. BEST_EFFORT takes the best available set of nodes. RESTRICTED rejects sets that are not preferred.
    SINGLE_NUMA_NODE rejects requests that do not fit on one node.
    """

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(Enum):
    CONTAINER = "container"
    POD = "pod"


class Topology(Struct, frozen=True):
    """numa_nodes: the machine's nodes, sorted; other nodes that a plugin reports are ignored."""

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


class Hint(Struct, frozen=True):
    """A set of nodes whose devices could meet the request. mask: NUMA nodes as bits, never 0."""

    mask: int
    is_preferred: bool


# The hints of one resource for one request. None: no preference. Empty: no set of nodes can meet it.
Hints = tuple[Hint, ...] | None


class Merged(Struct, frozen=True):
    """affinity: the preferred NUMA nodes, None for any. is_admitted: by the policy."""

    affinity: frozenset[int] | None
    is_admitted: bool


ANYWHERE = Merged(None, True)

# chooses one of several sets of nodes
Choose = Callable[[Sequence[int]], int]


def hints(
    devices: Mapping[str, Device],
    count: int,
    free: Collection[str],
    reusable: Collection[str],
    numa_nodes: Iterable[int],
) -> Hints:
    """Every set of NUMA nodes that could serve `count` of these devices. devices: also unhealthy ones. reusable: the pod's devices
    from its init containers, disjoint from `free`; every set of nodes must include all of them.
    """
    listed_at = Counter(device.numa_nodes for device in devices.values())
    free_at = Counter(devices[device_id].numa_nodes for device_id in free if device_id in devices)
    reusable_at = Counter(devices[i].numa_nodes for i in reusable if i in devices and devices[i].numa_nodes)
    return _hints_at(listed_at, count, free_at, reusable_at, len(free) + len(reusable), numa_nodes)


def _hints_at(
    listed_at: Mapping[tuple[int, ...], int],
    count: int,
    free_at: Mapping[tuple[int, ...], int],
    reusable_at: Counter[tuple[int, ...]],
    available: int,
    numa_nodes: Iterable[int],
) -> Hints:
    """The same, computed from the number of devices at each set of nodes. available: the number of all available devices."""
    if not any(listed_at):
        return None
    if available < count:
        return ()
    known = frozenset(numa_nodes)
    hosting = known.intersection(node for nodes in listed_at for node in nodes)
    candidates = tuple(sorted(hosting or known))
    sets = _subsets(candidates)
    listed_on, free_on, reusable_on = (_touching(at, candidates) for at in (listed_at, free_at, reusable_at))
    enough = (mask.bit_count() for mask, number in zip(sets, listed_on, strict=True) if number >= count)
    smallest = min(enough, default=len(candidates))
    placed = reusable_at.total()
    return tuple(
        Hint(mask, mask.bit_count() == smallest)
        for mask, number, reused in zip(sets, free_on, reusable_on, strict=True)
        if reused == placed and reused + number >= count
    )


def merge(topology: Topology, of_resources: Iterable[Hints], choose: Choose = itemgetter(0)) -> Merged:
    """Decide for all aligned resources: the narrowest set of nodes that all agree on. choose: among these, the narrowest first."""
    preferences = [found for found in of_resources if found is not None]
    if not topology.is_aligning or not preferences:
        return ANYWHERE
    whole = _mask(topology.numa_nodes, frozenset(topology.numa_nodes))
    is_single = topology.policy is TopologyPolicy.SINGLE_NUMA_NODE
    agreed = frozenset.intersection(*(_preferred(found, is_single) for found in preferences))
    if agreed:
        best = choose(sorted(agreed, key=_narrowness))
        # one node needs no alignment
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


def _touching(at: Mapping[tuple[int, ...], int], candidates: tuple[int, ...]) -> list[int]:
    """The number of devices near each set of these nodes, in the order of _subsets(). Takes as long for many sets of nodes."""
    bits = {node: 1 << index for index, node in enumerate(candidates)}
    # by set of nodes, as bits: the devices at that set; then at each of its subsets, too, which adds one node after the other
    within = [0] * (1 << len(candidates))
    for nodes, number in at.items():
        within[sum(bits[node] for node in bits.keys() & nodes)] += number
    for bit in bits.values():
        for start in range(bit, len(within), 2 * bit):
            within[start : start + bit] = map(add, within[start : start + bit], within[start - bit : start])
    # a device is near a set unless all its nodes are outside
    return [within[-1] - within[~mask] for mask in _subsets(tuple(range(len(candidates))))]


def _mask(nodes: Iterable[int], known: frozenset[int]) -> int:
    return sum(1 << node for node in known.intersection(nodes))


def _nodes(mask: int) -> frozenset[int]:
    return frozenset(node for node in range(mask.bit_length()) if mask >> node & 1)


def _narrowness(mask: int) -> tuple[int, int]:
    """Fewer nodes first, then those with lower numbers."""
    return mask.bit_count(), mask


# The kubelet's words, for users who search for them.
UNALIGNED = "resources cannot be allocated with topology locality"


def align(topology: Topology, current: PodAllocation, choose: Choose = itemgetter(0)) -> bool:
    """Decide the NUMA nodes for the current request, unless they are decided. Returns whether the policy admits it."""
    request = current.request
    if not topology.is_aligning or request is None:
        return True
    if request.container not in current.affinities:
        is_whole_pod = topology.scope is TopologyScope.POD
        found = (
            _pod_hints(topology, current) if is_whole_pod else _container_hints(topology, current, request.container)
        )
        merged = merge(topology, found, choose)
        if not merged.is_admitted:
            return False
        containers = {r.container for r in current.requests} if is_whole_pod else {request.container}
        current.affinities.update(dict.fromkeys(containers, merged.affinity))
    return not topology.is_strict or _is_still_possible(current, request)


def _container_hints(topology: Topology, current: PodAllocation, container: str) -> Iterator[Hints]:
    for request in current.requests:
        if request.container == container:
            resource = current.book.resources[request.resource_name]
            allocation = current.book.of(current.pod.uid, container, request.resource_name)
            held = None if allocation is None else allocation.device_ids
            yield _hints(topology, current, resource, request.count, held, current.reusable(resource))


def _pod_hints(topology: Topology, current: PodAllocation) -> Iterator[Hints]:
    for name, count in sorted(pod_request(current.requests).items()):
        containers = [request.container for request in current.requests if request.resource_name == name]
        allocations = [current.book.of(current.pod.uid, container, name) for container in containers]
        held = tuple(sorted({i for allocation in allocations if allocation is not None for i in allocation.device_ids}))
        # If every container has an allocation, its devices suffice, even if they outnumber the pod's request.
        needed = len(held) if None not in allocations else count
        yield _hints(topology, current, current.book.resources[name], needed, held or None, ())


def _hints(
    topology: Topology,
    current: PodAllocation,
    resource: Resource,
    count: int,
    held: tuple[str, ...] | None,
    reusable: tuple[str, ...],
) -> Hints:
    devices = resource.devices
    if held is not None:
        # Held devices decide for the rest; a changed number cannot be met.
        return hints(devices, count, held if len(held) == count else (), (), topology.numa_nodes)
    free = current.free(resource)
    if are_linked(resource.listed):
        choices = to_align(resource.listed, count, free.ids, reusable)
        return hints(choices.devices, choices.count, choices.free, choices.reusable, topology.numa_nodes)
    free_at = {nodes: len(device_ids) for nodes, device_ids in free.at_nodes.items()}
    reusable_at = Counter(devices[i].numa_nodes for i in reusable if i in devices and devices[i].numa_nodes)
    available = len(free.ids) + len(reusable)
    return _hints_at(resource.listed.at_nodes, count, free_at, reusable_at, available, topology.numa_nodes)


def _is_still_possible(current: PodAllocation, request: DeviceRequest) -> bool:
    """Whether the decided nodes still have enough devices for this request. The plan decides this for linked parts."""
    affinity, resource = current.affinities[request.container], current.book.resources[request.resource_name]
    if affinity is None or not resource.listed.at_nodes or are_linked(resource.listed):
        return True
    free, reusable = current.free(resource), current.reusable(resource)
    near = sum(len(ids) for nodes, ids in free.at_nodes.items() if not affinity.isdisjoint(nodes))
    return near + near_count(resource.devices, reusable, affinity) >= request.count
