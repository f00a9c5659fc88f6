"""Records of the committed allocations: the devices of each resource that each container holds.

One entry per container and resource, as in the kubelet's checkpoint. Two entries of one pod may share a device (an init container's
and an app container's); entries of two pods never do.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from msgspec import structs
from nodedevice_api.device_ids import has_original, long_octets

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.derived import Record

# of a variable, mount, device file or annotation, in addition to its text
_ENTRY_OCTETS: Final = 200
NO_NUMA_NODE = -1
# the end of the year 9999: the API cannot express a later time
MAX_SINCE = 253_402_300_799
# Pod UID, container, resource name.
AllocationKey = tuple[str, str, str]


class Allocation(Record, frozen=True, eq=False):
    """One container's devices of one resource. ids_by_numa: NUMA node to device IDs, -1 without a node; a device on two nodes is
    listed under both (the kubelet's format). response: the plugin's ContainerAllocateResponse, protobuf bytes; None if it was lost
    and Allocate must be called again. edits: the response, decoded; None if it is missing or cannot be decoded. since: when the
    container got these devices, wall clock, Unix seconds; 0 if unknown. delivery: a DELIVERY_* of nodedevice_api.names; "" if not
    recorded. files: path and number (c188:0) of the response's device files at the time of the response; sorted, empty if unknown.
    """

    UNCOMPARED: ClassVar = frozenset(("edits", "device_ids", "octets"))

    pod_uid: str
    container: str
    resource_name: str
    ids_by_numa: Mapping[int, tuple[str, ...]]
    response: bytes | None
    edits: ContainerEdits | None = None
    since: int = 0
    files: tuple[tuple[str, str], ...] = ()
    delivery: str = ""
    # Derived once, because they are read often: sorted, without duplicates.
    device_ids: tuple[str, ...] = ()
    # size of the response and of long device IDs, in memory
    octets: int = 0

    def __post_init__(self) -> None:
        found = tuple(self.ids_by_numa.values())
        device_ids = found[0] if len(found) == 1 and len(found[0]) == 1 else tuple(sorted(set().union(*found)))
        # one tuple if all devices are at one node, or at none
        device_ids = next((ids for ids in found if ids == device_ids), device_ids)
        structs.force_setattr(self, "device_ids", device_ids)
        structs.force_setattr(self, "octets", kept_octets(self.response, self.edits, device_ids))

    @property
    def key(self) -> AllocationKey:
        return self.pod_uid, self.container, self.resource_name

    @property
    def has_originals(self) -> bool:
        """Whether the original of every device ID is known; see device_ids."""
        return all(map(has_original, self.device_ids))

    @property
    def response_problem(self) -> str:
        """Why the response cannot be used; "" if it can, or if it is missing."""
        if self.response is None or self.edits is not None:
            return ""
        return f"AllocResp cannot be decoded ({len(self.response)} bytes)"


def known_since(value: object) -> int:
    """Validate an allocation's `since`; 0 (unknown) for an invalid time."""
    # True is an int
    return value if type(value) is int and 0 < value <= MAX_SINCE else 0


def kept_octets(response: bytes | None, edits: ContainerEdits | None, device_ids: Iterable[str] = ()) -> int:
    """The approximate size of one response and its long device IDs."""
    octets = 2 * len(response or b"") + 2 * long_octets(device_ids)
    if edits is None:
        return octets
    entries = (edits.envs, edits.mounts, edits.devices, edits.annotations, edits.cdi_devices)
    return octets + _ENTRY_OCTETS * sum(map(len, entries))


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
    """Split allocations into those whose devices belong to one pod, the first that has them, and the conflicting rest."""
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
