"""The devices of GPUs: how they are listed, which of them to allocate together, and what a container gets for them.

A device is a whole GPU; parts.py has the parts of shared ones. Its ID is the GPU's UUID, which survives reboots, and which
CUDA and the container toolkits take.

Together go the GPUs whose pairs have the highest total score. Of equal sets, the one with the lowest score between it and the GPUs
that stay free counts, then the one on fewer NUMA nodes, then the lowest IDs in natural order. The choice is exact if all sets can
be tried in some tens of milliseconds, as with 16 GPUs. Beyond that it takes one device after the other.
Source: kubelet deviceplugin v1beta1, GetPreferredAllocation.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

from msgspec import Struct, field

from nodedevice_agent.lib.deviceplugin_server.values import (
    ContainerAllocation,
    DeviceNode,
    Injector,
    PluginDevice,
    natural_key,
)
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES, VOID
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice, Pair, pair
from nodedevice_agent.plugins.nvml.health import addressed
from nodedevice_agent.plugins.nvml.identity import UNKNOWN, OnHost, device_files, is_numbered
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS

ENV, DEVICE_NODES, CDI, AUTO = "env", "deviceNodes", "cdi", "auto"

# besides each GPU's own; every CUDA program needs the first two, and the others where the driver has them
NEEDED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
CONTROL_NODES = (*NEEDED_NODES, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

# C(16, 8) is 12,870
MOST_SETS = 13_000

NumaNodes = Mapping[str, tuple[int, ...]]
# lower is better: minus the set's score, its score with the rest, its NUMA nodes, the positions of its IDs
Rank = tuple[int, int, int, tuple[int, ...]]


def preferred(
    scores: Mapping[Pair, int], numa_nodes: NumaNodes, free: Iterable[str], must_include: Iterable[str], size: int
) -> tuple[str, ...]:
    """Choose `size` device IDs: must_include first, the rest in natural order.

    scores: of pairs of devices; a missing pair counts 0. free: the others to choose from, at least as many as needed.
    """
    must, others = sorted(must_include, key=natural_key), sorted(free, key=natural_key)
    wanted = size - len(must)
    rank, places = _ranking(scores, numa_nodes, must, others), range(len(others))
    chosen: tuple[int, ...] = ()
    if comb(len(others), wanted) <= MOST_SETS:
        chosen = min(combinations(places, wanted), key=rank)
    while len(chosen) < wanted:
        chosen = min((tuple(sorted((*chosen, place))) for place in places if place not in chosen), key=rank)
    return (*must, *(others[index] for index in chosen))


def device_of(gpu: Gpu, trouble: Trouble | None, host: OnHost = UNKNOWN) -> PluginDevice:
    attributes = gpu.attributes() | host.attributes(gpu.uuid)
    return PluginDevice(
        gpu.uuid,
        is_healthy=trouble is None,
        numa_nodes=gpu.numa_nodes(),
        reason=trouble.reason if trouble else "",
        message=addressed(trouble.message, host.program, gpu.uuid) if trouble else "",
        attributes=tuple(sorted(attributes.items())),
        parent=gpu.uuid,
        identity=host.identity(gpu),
        files=host.files(GpuDevice(gpu)),
    )


class Refused(Exception):
    """A container cannot have these devices; the text names the reason and the remedy."""


class HandOver(Struct, frozen=True):
    """How containers of this node get GPUs.

    ways: of ENV, DEVICE_NODES and CDI. control_nodes: the CONTROL_NODES that exist. capabilities: see mig.capability_minors().
    are_void: whether the specifications of CDI see to it that NVIDIA's container runtime gives nothing besides; see CdiSpecs.
    """

    ways: Collection[str]
    cdi_kind: str
    control_nodes: Sequence[str] = ()
    capabilities: Mapping[str, int] = field(default_factory=dict)
    are_void: bool = False


def chosen_ways(
    ids: Collection[str], specified: Collection[str], have_files: bool, injector: Injector
) -> tuple[str, ...]:
    """The ways in which handOver auto now hands over these GPUs and instances.

    specified: GPUs and instances that the node's CDI specifications name. have_files: whether all their device files exist. A
    kubelet's runtime may silently ignore CDI devices (containerd 1.7 by default), so the container gets the variable as well. If
    the runtime accepts CDI devices, the specification's own value replaces it.
    """
    if injector.takes_cdi and set(ids) <= set(specified):
        return (CDI, ENV) if injector.is_kubelet else (CDI,)
    return (ENV, DEVICE_NODES) if have_files and not injector.is_kubelet else (ENV,)


def allocation(devices: Collection[GpuDevice], hand_over: HandOver) -> ContainerAllocation:
    """Additions to a container with these GPUs and MIG instances. Raises Refused."""
    ids = sorted(device.uuid for device in devices)
    by_files = DEVICE_NODES in hand_over.ways
    nodes = _device_nodes(devices, hand_over) if by_files else []
    return ContainerAllocation(
        device_nodes=tuple(DeviceNode(path, path, "rw") for path in nodes),
        env=_env(ids, hand_over),
        cdi_devices=tuple(f"{hand_over.cdi_kind}={device}" for device in ids) if CDI in hand_over.ways else (),
    )


def _env(ids: Sequence[str], hand_over: HandOver) -> dict[str, str]:
    if ENV in hand_over.ways:
        return {VISIBLE_DEVICES: ",".join(ids)}
    return {VISIBLE_DEVICES: VOID} if hand_over.are_void and CDI in hand_over.ways else {}


def _device_nodes(devices: Iterable[GpuDevice], hand_over: HandOver) -> list[str]:
    """Each file once: the instances of a GPU share some."""
    ordered = sorted(devices, key=lambda device: device.uuid)
    unnumbered = {device.gpu.uuid: None for device in ordered if device.gpu.minor is None}
    if unnumbered:
        raise Refused(
            f"the driver does not report the device file of {', '.join(unnumbered)}: if the GPU is missing, delete the pod; "
            "else set handOver to env or cdi",
        )
    for device in ordered:
        if not is_numbered(device, hand_over.capabilities):
            raise Refused(
                f"{CAPABILITY_MINORS} has no device files for instance {device.uuid}; set handOver to env or cdi",
            )
    files = [path for device in ordered for path in device_files(device, hand_over.capabilities)]
    return list(dict.fromkeys([*files, *hand_over.control_nodes]))


def _ranking(
    scores: Mapping[Pair, int], numa_nodes: NumaNodes, must: list[str], free: list[str]
) -> Callable[[tuple[int, ...]], Rank]:
    """Ranks sets of positions in the list of free devices, ascending. One choice compares some ten thousand sets."""
    rows = [[scores.get(pair(one, other), 0) if one != other else 0 for other in free] for one in free]
    # each one's score with must_include
    scores_anyway = [sum(scores.get(pair(one, other), 0) for other in must) for one in free]
    degrees = [sum(row) for row in rows]
    masks = [_mask(numa_nodes, [device_id]) for device_id in free]
    mask_anyway = _mask(numa_nodes, must)

    def rank(chosen: tuple[int, ...]) -> Rank:
        inside = anyway = degree = 0
        mask = mask_anyway
        for place, index in enumerate(chosen):
            row = rows[index]
            anyway += scores_anyway[index]
            degree += degrees[index]
            mask |= masks[index]
            for other in chosen[place + 1 :]:
                inside += row[other]
        # degrees count pairs within the set from both ends
        return (-inside - anyway, degree - 2 * inside, mask.bit_count(), chosen)

    return rank


def _mask(numa_nodes: NumaNodes, device_ids: Iterable[str]) -> int:
    return sum(1 << node for node in {node for device_id in device_ids for node in numa_nodes.get(device_id, ())})
