"""A GPU as its driver describes it, and how close two of them are.

How close two GPUs are is one number, the score of the pair:
`100 x NVLinks + proximity`: one NVLink counts more than any position in the PCI tree, and two links more than one. Proximity
decides between pairs with equal NVLinks:

    60  one board            40  several PCIe switches between them      20  one NUMA node
    50  one PCIe switch      30  one PCIe host bridge                    10  different NUMA nodes, or unknown

GPUs on NVSwitches have no links to each other, only to the switches: the smaller number of the two GPUs counts.
"""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import combinations

from msgspec import Struct, field, structs
from msgspec.structs import replace

from nodedevice_agent.plugins.nvml.mig import MigInstance

# becomes a device ID, a file name and an item of NVIDIA_VISIBLE_DEVICES
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# far more than any machine has
_MOST_NUMA_NODES = 1 << 16
_LINK = 100
_ONE_BOARD = 60


class Gpu(Struct, frozen=True):
    """Properties that do not change while the driver runs. Empty or None: not reported by the GPU or the driver.

    pci_bus_id: domain:bus:device.function, as in sysfs. minor: the N of /dev/nvidiaN. index: as NVML numbered it when it was first
    seen since the boot; a GPU that disappears renumbers others. not_supported: features of the plugin that this GPU does not
    support, sorted (docs/gpu.md lists them). instances: of a GPU in MIG mode, else None; these may change at any time.
    """

    uuid: str
    model: str = ""
    memory_bytes: int | None = None
    pci_bus_id: str = ""
    numa_node: int | None = None
    minor: int | None = None
    not_supported: tuple[str, ...] = ()
    index: int | None = None
    instances: tuple[MigInstance, ...] | None = None

    @property
    def is_plausible(self) -> bool:
        """Whether it can be listed as a device, and its instances can."""
        ids = (self.uuid, *(instance.uuid for instance in self.instances or ()))
        return all(map(is_uuid, ids)) and 0 <= (self.numa_node or 0) < _MOST_NUMA_NODES

    def completed(self, before: "Gpu") -> "Gpu":
        """A copy with properties that only an earlier description has: a call may fail once."""
        empty = [
            each.name
            for each in structs.fields(self)
            if getattr(self, each.name) in ("", None, ()) and each.name != "instances"
        ]
        index = self.index if before.index is None else before.index
        return replace(self, **{name: getattr(before, name) for name in empty} | {"index": index})

    def numa_nodes(self) -> tuple[int, ...]:
        return () if self.numa_node is None else (self.numa_node,)

    def attributes(self) -> dict[str, str]:
        known = {
            "model": self.model,
            "memoryBytes": "" if self.memory_bytes is None else str(self.memory_bytes),
            "pciBusID": self.pci_bus_id,
            "index": "" if self.index is None else str(self.index),
            "notSupported": ",".join(self.not_supported),
        }
        return {key: value for key, value in known.items() if value}


class GpuDevice(Struct, frozen=True):
    """A whole GPU, or one of its MIG instances."""

    gpu: Gpu
    instance: MigInstance | None = None

    @property
    def uuid(self) -> str:
        return self.gpu.uuid if self.instance is None else self.instance.uuid


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def sysfs_bus_id(nvml_bus_id: str) -> str:
    """The driver's `00000000:1B:00.0` is `0000:1b:00.0` in sysfs; other forms are only lower-cased."""
    domain, colon, rest = nvml_bus_id.strip().lower().partition(":")
    if colon and len(domain) == 8 and domain.startswith("0000"):
        domain = domain[4:]
    return f"{domain}{colon}{rest}"


class Ancestor(IntEnum):
    """The common ancestor of two GPUs in the PCI tree; the numbers are NVML's (nvmlGpuTopologyLevel_t)."""

    BOARD = 0
    SWITCH = 10
    SWITCHES = 20
    HOST_BRIDGE = 30
    NUMA_NODE = 40
    SYSTEM = 50


# two UUIDs in order
Pair = tuple[str, str]


class Ports(Struct, frozen=True):
    """The NVLinks of one GPU: how many lead to each other GPU, and how many to switches."""

    peers: Mapping[str, int] = field(default_factory=dict)
    to_switches: int = 0


def pair(one: str, other: str) -> Pair:
    return (one, other) if one <= other else (other, one)


def scores(gpus: Iterable[Gpu], ports: Mapping[str, Ports], ancestors: Mapping[Pair, Ancestor]) -> dict[Pair, int]:
    """The score of every pair. ports: by UUID. ancestors: if the driver reports them."""
    pairs = combinations(sorted(gpus, key=lambda gpu: gpu.uuid), 2)
    return {
        (one.uuid, other.uuid): score(nvlinks(one, other, ports), ancestors.get((one.uuid, other.uuid)), one, other)
        for one, other in pairs
    }


def nvlinks(one: Gpu, other: Gpu, ports: Mapping[str, Ports]) -> int:
    """How many NVLinks connect two GPUs. A broken GPU may not report its links: the other side's count is used."""
    ports_of_one, ports_of_other = ports.get(one.uuid, Ports()), ports.get(other.uuid, Ports())
    direct = max(ports_of_one.peers.get(other.uuid, 0), ports_of_other.peers.get(one.uuid, 0))
    return direct + min(ports_of_one.to_switches, ports_of_other.to_switches)


def score(links: int, ancestor: Ancestor | None, one: Gpu, other: Gpu) -> int:
    if ancestor is None:
        # virtual machines hide the PCI tree but report NUMA nodes
        is_near = one.numa_node is not None and one.numa_node == other.numa_node
        ancestor = Ancestor.NUMA_NODE if is_near else Ancestor.SYSTEM
    return _LINK * links + _ONE_BOARD - ancestor
