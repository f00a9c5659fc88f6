"""The committed allocations: which pod holds which device; and the checkpoint, which keeps them over a restart.

One entry per container and resource, as in the kubelet's checkpoint. A device may be in two entries of one pod (an init
container's and an app container's), but never in entries of two pods. The checkpoint's file format is in checkpoint/format.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
from nodedevice_api.device_ids import has_original
from nodedevice_api.extended_resources import domain_of

from nodedevice_agent.devicemanager.allocation import answer_limit
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.resources.cordons import Cordons
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_agent.identity import Identity

NO_NUMA_NODE = -1
# the end of the year 9999: a later time has no text in the API
MAX_SINCE = 253_402_300_799
_MAX_MESSAGE = 300
# Pod UID, container, resource name.
AllocationKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Allocation:
    """One container's devices of one resource.

    ids_by_numa: NUMA node to device IDs, -1 where a device has none; a device on two nodes is listed under both (the kubelet's
    format). response: the plugin's ContainerAllocateResponse, protobuf bytes; None if it was lost and Allocate must be called
    again.
    edits: the response, decoded; None where there is none or it cannot be decoded.
    since: when the container got these devices, by the wall clock, Unix seconds; 0 where it is not known.
    delivery: how its devices reach the container, a DELIVERY_* of nodedevice_api.names; "" in an older checkpoint, for the agent's.
    files: path and number (c188:0) of the response's device files, as they were when it was given; sorted, empty where not known.
    """

    pod_uid: str
    container: str
    resource_name: str
    ids_by_numa: Mapping[int, tuple[str, ...]]
    response: bytes | None
    edits: ContainerEdits | None = field(default=None, repr=False, compare=False)
    since: int = 0
    files: tuple[tuple[str, str], ...] = ()
    delivery: str = ""
    # sorted, without duplicates; derived once, because they are read often
    device_ids: tuple[str, ...] = field(init=False, repr=False, compare=False)
    # of the response and of long device IDs, in memory
    octets: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = tuple(self.ids_by_numa.values())
        device_ids = found[0] if len(found) == 1 and len(found[0]) == 1 else tuple(sorted(set().union(*found)))
        # one tuple where all are at one node, or at none
        device_ids = next((ids for ids in found if ids == device_ids), device_ids)
        object.__setattr__(self, "device_ids", device_ids)
        octets = answer_limit.kept_octets(self.response, self.edits, device_ids)
        object.__setattr__(self, "octets", octets)

    @property
    def key(self) -> AllocationKey:
        return self.pod_uid, self.container, self.resource_name

    @property
    def has_originals(self) -> bool:
        """Whether the original of every device ID is known; see device_ids."""
        return all(map(has_original, self.device_ids))

    def with_originals(self, devices: Mapping[str, Device]) -> "Allocation":
        """The same with the original IDs of listed devices. devices: by ID."""

        def listed(ids: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(devices[i].id if i in devices else i for i in ids)

        return replace(self, ids_by_numa={node: listed(ids) for node, ids in self.ids_by_numa.items()})

    @property
    def response_problem(self) -> str:
        """Why the response cannot be used; empty where it can, or where there is none."""
        if self.response is None or self.edits is not None:
            return ""
        return f"AllocResp cannot be decoded ({len(self.response)} bytes)"


def known_since(value: object) -> int:
    """An allocation's `since` as it was read; 0, not known, for what is no such time."""
    # True is an int
    return value if type(value) is int and 0 < value <= MAX_SINCE else 0


class CheckpointCorrupt(Exception):
    """An invalid checkpoint. The message names the error and is bounded, whatever the file holds."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...")


class PluginSocket(msgspec.Struct, frozen=True, rename={"resource_name": "ResourceName", "name": "Endpoint"}):
    """The socket of a connected plugin, for reconnecting after a restart; renamed as in the checkpoint's file.

    name: file name in the plugin directory.
    """

    resource_name: str
    name: str


class JournalMark(msgspec.Struct, frozen=True):
    """A position in a journal. generation: identifies the process that wrote it, new for each. sequence: of the last line."""

    generation: str
    sequence: int


class Checkpoint(msgspec.Struct, frozen=True):
    """Allocations and what else a restart needs.

    registered: healthy device IDs by resource; a restart uses only the names. boot_id: of the kernel at writing time.
    sockets: the plugins that were connected; only a hint for the next start, so invalid entries do not make the file corrupt.
    pre_starts: the pending PreStartContainer calls. unlisted: containers that may live, and that the runtime does not list.
    static_pods: those with allocations or calls, as the runtime has shown them. cordons: by resource name; without empty ones.
    allocate_calls: Allocate calls without an allocation, where a second one must not be made. possible_holders: UIDs of pods by
    resource name; see omitted_allocations. gone: names of resources without allocations whose plugin is gone. part_sizes: by
    resource name; see Resource. identities: what held devices are, by resource name and device ID; only of built-in plugins.
    scopes: of the resources that built-in plugins serve, by resource name; a short printable word.
    journal: the last journal line that is included; None without a journal, as in a kubelet's checkpoint.
    """

    allocations: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    boot_id: str = ""
    sockets: tuple[PluginSocket, ...] = ()
    pre_starts: tuple[AllocationKey, ...] = ()
    unlisted: tuple[UnlistedContainer, ...] = ()
    static_pods: tuple[StaticPod, ...] = ()
    cordons: Mapping[str, Cordons] = msgspec.field(default_factory=dict)
    allocate_calls: tuple[AllocationKey, ...] = ()
    possible_holders: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()
    part_sizes: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    identities: Mapping[str, Mapping[str, Identity]] = msgspec.field(default_factory=dict)
    scopes: Mapping[str, str] = msgspec.field(default_factory=dict)
    journal: JournalMark | None = None


class AllocationBook:
    """All committed allocations, and which of their pods have ended while a container may still run.

    resources: every resource with allocations; the `holders` of each are kept up to date here.
    """

    def __init__(self, resources: Mapping[str, Resource]) -> None:
        self.resources = resources
        # of new allocations
        self.delivery = ""
        # by pod UID, then by container and resource name
        self.by_pod: dict[str, dict[tuple[str, str], Allocation]] = {}
        # pods that have ended in the API and still hold their devices: by UID, since when (monotonic seconds)
        self.releasing: dict[str, float] = {}
        # those without a response
        self.unanswered: dict[AllocationKey, Allocation] = {}
        # resources with device IDs whose original is not known
        self._without_originals: set[str] = set()
        # of the responses
        self._kept = 0

    def add(self, allocation: Allocation) -> None:
        """Add or replace one container's entry. Raises ValueError if another pod holds one of its devices."""
        pod_uid, resource = allocation.pod_uid, self.resources[allocation.resource_name]
        holders = resource.holders
        for device_id in holders.keys() & allocation.device_ids:
            if holders[device_id] != pod_uid:
                raise ValueError(f"{allocation.resource_name} {device_id} is held by pod {holders[device_id]}")
        holders.update(dict.fromkeys(allocation.device_ids, pod_uid))
        resource.holds += 1
        entries = self.by_pod.setdefault(pod_uid, {})
        before = entries.get((allocation.container, allocation.resource_name))
        entries[allocation.container, allocation.resource_name] = allocation
        self._kept += allocation.octets - (before.octets if before else 0)
        if allocation.response is None:
            self.unanswered[allocation.key] = allocation
        elif self.unanswered:
            self.unanswered.pop(allocation.key, None)

    def restore(self, allocation: Allocation) -> None:
        """Add one of before a restart. It may be from the API, which has the shown form of a device ID alone."""
        self.add(allocation)
        if not allocation.has_originals:
            self._without_originals.add(allocation.resource_name)

    def learn_originals(self, resource: Resource) -> None:
        """A plugin has listed devices of it: with their original IDs, which an allocation from the API lacks."""
        if resource.name not in self._without_originals:
            return
        for allocation in self.of_resource(resource.name):
            self.add(allocation.with_originals(resource.devices))
        if all(allocation.has_originals for allocation in self.of_resource(resource.name)):
            self._without_originals.discard(resource.name)

    def lacks_original(self, allocation: Allocation) -> bool:
        """Whether the plugin would not know one of its devices by the ID that is known of it."""
        return allocation.resource_name in self._without_originals and not allocation.has_originals

    def release(self, pod_uid: str) -> frozenset[str]:
        """Remove a pod's allocations. Returns their resource names."""
        self.releasing.pop(pod_uid, None)
        released = self.by_pod.pop(pod_uid, {}).values()
        for allocation in released:
            self._free(allocation)
        return frozenset([allocation.resource_name for allocation in released])

    def rename(self, pod_uid: str, known_as: str) -> None:
        """The same pod under another UID; ignored if that one holds devices already."""
        if known_as in self.by_pod:
            return
        for allocation in self.by_pod.pop(pod_uid, {}).values():
            self._free(allocation)
            self.add(replace(allocation, pod_uid=known_as))

    def drop(self, allocation: Allocation) -> None:
        """Remove this one, with those of its pod that share a device with it in the same turn."""
        entries = self.by_pod[allocation.pod_uid]
        del entries[allocation.container, allocation.resource_name]
        if not entries:
            self.release(allocation.pod_uid)
        self._free(allocation)

    def _free(self, allocation: Allocation) -> None:
        if self.unanswered:
            self.unanswered.pop(allocation.key, None)
        self._kept -= allocation.octets
        resource = self.resources[allocation.resource_name]
        resource.holds += 1
        for device_id in allocation.device_ids:
            resource.holders.pop(device_id, None)

    def no_room(self, made: Allocation, uncommitted: Iterable[Allocation]) -> str:
        """Why there is no room for the response of one more allocation; empty where there is.

        uncommitted: the allocations of transactions in progress.
        """
        before, uncommitted = self.of(*made.key), tuple(uncommitted)
        octets = made.octets - (before.octets if before else 0)
        if self._kept + octets + sum(a.octets for a in uncommitted) <= answer_limit.MAX_OCTETS_OF_DOMAIN:
            return ""
        kept: Counter[str] = Counter()
        for allocation in (*self, *uncommitted):
            kept[domain_of(allocation.resource_name)] += allocation.octets
        return answer_limit.answer_problem(made.resource_name, octets, kept)

    def set_releasing(self, pod_uid: str, now: float) -> frozenset[str]:
        """The pod has ended in the API, but its containers are not known to have ended. Returns the resource names affected."""
        if pod_uid not in self.by_pod or pod_uid in self.releasing:
            return frozenset()
        self.releasing[pod_uid] = now
        return frozenset(allocation.resource_name for allocation in self.of_pod(pod_uid))

    def set_held_again(self, pod_uid: str) -> frozenset[str]:
        """The pod is in the API again: a static pod's mirror pod was recreated. Returns the resource names affected."""
        if self.releasing.pop(pod_uid, None) is None:
            return frozenset()
        return frozenset(allocation.resource_name for allocation in self.of_pod(pod_uid))

    def of(self, pod_uid: str, container: str, resource_name: str) -> Allocation | None:
        return self.by_pod.get(pod_uid, {}).get((container, resource_name))

    def of_pod(self, pod_uid: str) -> list[Allocation]:
        return list(self.by_pod.get(pod_uid, {}).values())

    def of_resource(self, resource_name: str) -> list[Allocation]:
        """Sorted by pod UID and container."""
        found = (a for a in self if a.resource_name == resource_name)
        return sorted(found, key=lambda a: (a.pod_uid, a.container))

    def of_container(self, pod_uid: str, container: str) -> list[Allocation]:
        """By resource name."""
        found = [a for (name, _), a in self.by_pod.get(pod_uid, {}).items() if name == container]
        return sorted(found, key=lambda a: a.resource_name)

    def sharers(self, pod_uid: str, container: str) -> list[Allocation]:
        """The container's allocations, and those of its pod's other containers that have a device in common with them."""
        mine = {(a.resource_name, i) for a in self.of_container(pod_uid, container) for i in a.device_ids}
        return [a for a in self.of_pod(pod_uid) if not mine.isdisjoint((a.resource_name, i) for i in a.device_ids)]

    def __iter__(self) -> Iterator[Allocation]:
        for entries in self.by_pod.values():
            yield from entries.values()


def by_numa(device_ids: Iterable[str], numa_nodes: Mapping[str, tuple[int, ...]]) -> dict[int, tuple[str, ...]]:
    """Group device IDs by NUMA node, in numeric order of node."""
    nodes: dict[int, list[str]] = {}
    device_ids = sorted(device_ids)
    if not numa_nodes and device_ids:
        return {NO_NUMA_NODE: tuple(device_ids)}
    for device_id in device_ids:
        for node in numa_nodes.get(device_id) or (NO_NUMA_NODE,):
            nodes.setdefault(node, []).append(device_id)
    return {node: tuple(nodes[node]) for node in sorted(nodes)}


def each_device_once(allocations: Iterable[Allocation]) -> tuple[tuple[Allocation, ...], tuple[Allocation, ...]]:
    """The allocations of which each device belongs to one pod, the first that has it; and those left out for that."""
    holders: dict[str, dict[str, str]] = {}
    kept, conflicts = [], []
    for allocation in allocations:
        of_resource = holders.setdefault(allocation.resource_name, {})
        if any(of_resource[i] != allocation.pod_uid for i in of_resource.keys() & allocation.device_ids):
            conflicts.append(allocation)
            continue
        of_resource.update(dict.fromkeys(allocation.device_ids, allocation.pod_uid))
        kept.append(allocation)
    return tuple(kept), tuple(conflicts)
