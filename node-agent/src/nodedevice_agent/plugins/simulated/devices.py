"""Simulated devices: which exist, which are healthy, what a container gets, and which to allocate together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Annotated

from msgspec import Meta, Struct

from nodedevice_agent.lib.deviceplugin_server.values import (
    ContainerAllocation,
    PluginDevice,
    env_name,
    natural_key,
    shared_ids,
)

MAX_SIMULATED = 10_000

NumaNodes = tuple[int, ...]
DeviceIDs = Annotated[frozenset[str], Meta(max_length=MAX_SIMULATED)]


class SimulatedState(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes by a person: unhealthy devices, removed devices, and another number of devices if set. A device, or a part of one."""

    unhealthy: DeviceIDs = frozenset()
    missing: DeviceIDs = frozenset()
    count: Annotated[int, Meta(ge=0, le=MAX_SIMULATED)] | None = None

    def unknown(self, known_ids: Iterable[str]) -> tuple[str, ...]:
        """Device IDs in the state that do not exist, sorted."""
        return tuple(sorted((self.unhealthy | self.missing) - set(known_ids)))


def simulated_ids(id_prefix: str, count: int) -> tuple[str, ...]:
    """`gpu-0`, `gpu-1`, ..."""
    return tuple(f"{id_prefix}-{index}" for index in range(count))


def simulated_devices(
    ids: Iterable[str], numa_node_count: int, state: SimulatedState, part_count: int = 1
) -> tuple[PluginDevice, ...]:
    """The devices to list, or their parts if they have several.

    NUMA nodes are assigned round-robin, so a device keeps its node when the number of devices changes.
    """
    return tuple(
        PluginDevice(
            part,
            state.unhealthy.isdisjoint((name, part)),
            (index % numa_node_count,) if numa_node_count else (),
            parent=name if part_count > 1 else "",
        )
        for index, name in enumerate(ids)
        for part in shared_ids(name, part_count)
        if state.missing.isdisjoint((name, part))
    )


def allocate(resource_name: str, ids: Iterable[str]) -> ContainerAllocation:
    """The container gets its IDs in the variable `EXAMPLE_COM_GPU`, the runtime in an annotation; no device files."""
    joined = ",".join(ids)
    return ContainerAllocation(env={env_name(resource_name): joined}, annotations={resource_name: joined})


def preferred(
    numa_nodes: Mapping[str, NumaNodes], free: Set[str], must_include: Iterable[str], size: int
) -> tuple[str, ...]:
    """Choose `size` device IDs on as few NUMA nodes as possible: must_include first, then its NUMA neighbours, then lowest IDs.

    numa_nodes: of every known device; a device without any is equally far from all nodes. Deterministic.
    Source: kubelet deviceplugin v1beta1, GetPreferredAllocation.
    """
    chosen = sorted(must_include, key=natural_key)
    free = set(free)
    wanted = size - len(chosen)
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
    """The next node to take from: the one with most chosen devices, otherwise the smallest that fits all, otherwise the largest."""
    room = Counter(node for device_id in free for node in numa_nodes.get(device_id, ()))
    if not room:
        return None

    def rank(node: int) -> tuple[int, bool, int, int]:
        fits = room[node] >= wanted
        # of nodes that fit all, the smallest one leaves the larger ones to bigger requests
        return (-near[node], not fits, room[node] if fits else -room[node], node)

    return min(room, key=rank)
