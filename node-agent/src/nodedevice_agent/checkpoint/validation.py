"""Whether a checkpoint of the right form and checksum can be ours: nothing in it that a device plugin could not have brought about.

A checksum says that nothing was damaged, not who wrote it. What this agent writes always passes. The kubelet's own file, which
holds whatever any plugin told it, is not judged by this.
"""

from nodedevice_api.resource_names import resource_name_problem

from nodedevice_agent.devicemanager.allocation.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.devices import MAX_NUMA_NODE, is_valid_id
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt

_SHOWN = 40


def refuse_impossible(checkpoint: Checkpoint) -> None:
    """Raises CheckpointCorrupt with the first thing that cannot be."""
    names = {allocation.resource_name for allocation in checkpoint.allocations}
    for name in sorted(names.union(checkpoint.registered)):
        problem = resource_name_problem(name)
        if problem:
            raise CheckpointCorrupt(f"resource name {name[:_SHOWN]!a}: {problem}")
    for allocation in checkpoint.allocations:
        _refuse_impossible_devices(allocation)


def _refuse_impossible_devices(allocation: Allocation) -> None:
    for node in allocation.ids_by_numa:
        if not NO_NUMA_NODE <= node <= MAX_NUMA_NODE:
            raise CheckpointCorrupt(f"{allocation.resource_name}: there is no NUMA node {str(node)[:_SHOWN]}")
    for device_id in allocation.device_ids:
        if not is_valid_id(device_id):
            raise CheckpointCorrupt(f"{allocation.resource_name}: {device_id[:_SHOWN]!a} can be no device ID")
