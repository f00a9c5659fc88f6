"""Whether a checkpoint with the right form and checksum can be true. A checksum detects damage, not a wrong writer."""

from collections.abc import Iterable

from nodedevice_api.resource_names import resource_name_problem

from nodedevice_agent.devicemanager.allocation.allocations import (
    NO_NUMA_NODE,
    Allocation,
    Checkpoint,
    CheckpointCorrupt,
)
from nodedevice_agent.devicemanager.devices import MAX_NUMA_NODE, is_valid_id

_SHOWN = 40


def check_consistent(allocations: Iterable[Allocation]) -> None:
    """For any checkpoint, a kubelet's too: no device has two pods, and no container two entries for one resource.

    The second entry would replace the first, whose devices would then be held by nobody for ever. Raises CheckpointCorrupt.
    """
    holders: dict[tuple[str, str], str] = {}
    keys = set()
    for allocation in allocations:
        resource_name, uid = allocation.resource_name, allocation.pod_uid
        for device_id in allocation.device_ids:
            holder = holders.setdefault((resource_name, device_id), uid)
            if holder != uid:
                raise CheckpointCorrupt(f"{resource_name} {device_id} is held by pods {holder} and {uid}")
        if (uid, allocation.container, resource_name) in keys:
            raise CheckpointCorrupt("a container has two entries for one resource")
        keys.add((uid, allocation.container, resource_name))


def check_possible(checkpoint: Checkpoint) -> None:
    """For our own: every name and ID is one that a device plugin can register. Raises CheckpointCorrupt with the first error.

    What this agent writes always passes. A kubelet's checkpoint is not checked: it holds whatever any plugin reported.
    """
    for name in sorted(
        {allocation.resource_name for allocation in checkpoint.allocations} | set(checkpoint.registered)
    ):
        problem = resource_name_problem(name)
        if problem:
            raise CheckpointCorrupt(f"resource name {name[:_SHOWN]!a}: {problem}")
    for allocation in checkpoint.allocations:
        for node in allocation.ids_by_numa:
            if not NO_NUMA_NODE <= node <= MAX_NUMA_NODE:
                raise CheckpointCorrupt(f"{allocation.resource_name}: invalid NUMA node {str(node)[:_SHOWN]}")
        for device_id in allocation.device_ids:
            if not is_valid_id(device_id):
                raise CheckpointCorrupt(f"{allocation.resource_name}: invalid device ID {device_id[:_SHOWN]!a}")
