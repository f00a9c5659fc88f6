"""Which of the free devices to hand out together: as few NUMA nodes as can be, then the lowest IDs.

Source: kubelet deviceplugin v1beta1, GetPreferredAllocation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodedevice_agent.lib.deviceplugin_server.device_ids import natural_key
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused

NumaNodes = tuple[int, ...]


def preferred(
    resource_name: str,
    numa_nodes: Mapping[str, NumaNodes],
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
) -> tuple[str, ...]:
    """Choose `size` device IDs: must_include first, then its NUMA neighbours, the rest by node and lowest ID.

    numa_nodes: of every known device; a device without any is as far from one node as from another.
    Equal inputs give an equal answer. Raises AllocationRefused when `available` holds too few, or `size` is too small
    for must_include.
    """
    chosen = sorted(set(must_include), key=natural_key)
    free = set(available) - set(chosen)
    wanted = size - len(chosen)
    if wanted < 0 or wanted > len(free):
        raise AllocationRefused(
            resource_name,
            f"{size} devices asked for, of {len(free)} available and {len(chosen)} that must be among them",
        )
    near = Counter(node for device_id in chosen for node in numa_nodes.get(device_id, ()))
    while wanted > 0:
        node = _best_node(free, numa_nodes, near, wanted)
        here = [device_id for device_id in free if node is None or node in numa_nodes.get(device_id, ())]
        picked = sorted(here, key=natural_key)[:wanted]
        chosen += picked
        free.difference_update(picked)
        wanted -= len(picked)
        near.update(node for device_id in picked for node in numa_nodes.get(device_id, ()))
    return tuple(chosen)


def _best_node(free: set[str], numa_nodes: Mapping[str, NumaNodes], near: Counter[int], wanted: int) -> int | None:
    """The node to take from next: where most of the chosen are, else the tightest that holds all, else the fullest."""
    room = Counter(node for device_id in free for node in numa_nodes.get(device_id, ()))
    if not room:
        return None

    def rank(node: int) -> tuple[int, bool, int, int]:
        fits = room[node] >= wanted
        # among nodes that hold all, a tight one leaves the roomy ones to bigger requests
        return (-near[node], not fits, room[node] if fits else -room[node], node)

    return min(room, key=rank)
