"""How close two GPUs are, as one number: the score of the pair.

`100 x NVLinks + proximity`: one NVLink counts more than any position in the PCI tree, and two links more than one. Proximity
decides between pairs with equal NVLinks:

    60  one board            40  several PCIe switches between them      20  one NUMA node
    50  one PCIe switch      30  one PCIe host bridge                    10  different NUMA nodes, or unknown

GPUs on NVSwitches have no links to each other, only to the switches: the smaller number of the two GPUs counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from nodedevice_agent.plugins.nvml.gpu import Gpu

_LINK = 100
_SAME_NUMA_NODE = 20
_APART = 10


class Ancestor(IntEnum):
    """The common ancestor of two GPUs in the PCI tree; the numbers are NVML's (nvmlGpuTopologyLevel_t)."""

    BOARD = 0
    SWITCH = 10
    SWITCHES = 20
    HOST_BRIDGE = 30
    NUMA_NODE = 40
    SYSTEM = 50


_PROXIMITY = {
    Ancestor.BOARD: 60,
    Ancestor.SWITCH: 50,
    Ancestor.SWITCHES: 40,
    Ancestor.HOST_BRIDGE: 30,
    Ancestor.NUMA_NODE: _SAME_NUMA_NODE,
    Ancestor.SYSTEM: _APART,
}

# two UUIDs in order
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Link:
    """Between two GPUs. nvlinks: how many of them; ancestor: None where the driver does not say."""

    nvlinks: int = 0
    ancestor: Ancestor | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The NVLinks of one GPU: how many lead to each other GPU, and how many to switches."""

    peers: Mapping[str, int] = field(default_factory=dict)
    to_switches: int = 0


def pair(one: str, other: str) -> Pair:
    """The pair in either order."""
    return (one, other) if one <= other else (other, one)


def links(ports: Mapping[str, Ports], ancestors: Mapping[Pair, Ancestor]) -> dict[Pair, Link]:
    """The link of each pair. A broken GPU may not report its links: the other side's count is used."""
    uuids = sorted(ports)
    return {
        (one, other): Link(_nvlinks(one, ports[one], other, ports[other]), ancestors.get((one, other)))
        for index, one in enumerate(uuids)
        for other in uuids[index + 1 :]
    }


def _nvlinks(one: str, ports_of_one: Ports, other: str, ports_of_other: Ports) -> int:
    direct = max(ports_of_one.peers.get(other, 0), ports_of_other.peers.get(one, 0))
    return direct + min(ports_of_one.to_switches, ports_of_other.to_switches)


def scores(gpus: Iterable[Gpu], known: Mapping[Pair, Link]) -> dict[Pair, int]:
    """The score of every pair."""
    in_order = sorted(gpus, key=lambda gpu: gpu.uuid)
    return {
        (one.uuid, other.uuid): score(known.get((one.uuid, other.uuid), Link()), one, other)
        for index, one in enumerate(in_order)
        for other in in_order[index + 1 :]
    }


def score(link: Link, one: Gpu, other: Gpu) -> int:
    """The score of one pair; see the docstring of the module."""
    if link.ancestor is not None:
        proximity = _PROXIMITY[link.ancestor]
    elif one.numa_node is not None and one.numa_node == other.numa_node:
        # virtual machines hide the PCI tree but report NUMA nodes
        proximity = _SAME_NUMA_NODE
    else:
        proximity = _APART
    return _LINK * link.nvlinks + proximity
