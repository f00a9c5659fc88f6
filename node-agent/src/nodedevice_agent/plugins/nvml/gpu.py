"""A GPU as its driver describes it, the device that is listed for it, and what a container gets with it.

A device is a whole GPU; shares or slices of one would be made here. Its ID is the GPU's UUID, which survives reboots, and which
CUDA and the container toolkits take.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace

from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    DeviceNode,
    PluginDevice,
)
from nodedevice_agent.plugins.nvml.health import Trouble

ENV, DEVICE_NODES, CDI = "env", "deviceNodes", "cdi"

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# besides each GPU's own; every CUDA program needs the first two, and the others where the driver has them
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

# becomes a device ID, a file name and an item of NVIDIA_VISIBLE_DEVICES
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# far more than any machine has
_MOST_NUMA_NODES = 1 << 16


@dataclass(frozen=True, slots=True)
class Gpu:
    """Properties that do not change while the driver runs. Empty or None: not reported by the GPU or the driver.

    pci_bus_id: domain:bus:device.function, as in sysfs. minor: the N of /dev/nvidiaN. not_supported: features of the plugin
    that this GPU does not support, sorted (docs/gpu.md lists them).
    """

    uuid: str
    model: str = ""
    memory_bytes: int | None = None
    pci_bus_id: str = ""
    numa_node: int | None = None
    minor: int | None = None
    not_supported: tuple[str, ...] = ()

    @property
    def is_plausible(self) -> bool:
        """Whether it can be listed as a device."""
        return is_uuid(self.uuid) and 0 <= (self.numa_node or 0) < _MOST_NUMA_NODES

    def completed(self, before: "Gpu") -> "Gpu":
        """A copy with properties that only an earlier description has: a call may fail once."""
        empty = [each.name for each in fields(self) if getattr(self, each.name) in ("", None, ())]
        return replace(self, **{name: getattr(before, name) for name in empty})

    def numa_nodes(self) -> tuple[int, ...]:
        """As in a device list; empty when unknown."""
        return () if self.numa_node is None else (self.numa_node,)

    def attributes(self) -> dict[str, str]:
        """Attributes of the device for administrators; only known ones."""
        known = {
            "model": self.model,
            "memoryBytes": "" if self.memory_bytes is None else str(self.memory_bytes),
            "pciBusID": self.pci_bus_id,
            "notSupported": ",".join(self.not_supported),
        }
        return {key: value for key, value in known.items() if value}


def is_uuid(text: str) -> bool:
    """Whether this can identify a GPU."""
    return _UUID.fullmatch(text) is not None


def sysfs_bus_id(nvml_bus_id: str) -> str:
    """The driver's `00000000:1B:00.0` is `0000:1b:00.0` in sysfs; other forms are only lower-cased."""
    domain, colon, rest = nvml_bus_id.strip().lower().partition(":")
    if colon and len(domain) == 8 and domain.startswith("0000"):
        domain = domain[4:]
    return f"{domain}{colon}{rest}"


def device_of(gpu: Gpu, trouble: Trouble | None) -> PluginDevice:
    """The device to list for this GPU."""
    return PluginDevice(
        gpu.uuid,
        is_healthy=trouble is None,
        numa_nodes=gpu.numa_nodes(),
        reason=trouble.reason if trouble else "",
        message=trouble.message if trouble else "",
        attributes=tuple(sorted(gpu.attributes().items())),
    )


def allocation(
    resource_name: str, gpus: Iterable[Gpu], ways: Collection[str], cdi_kind: str, control_nodes: Iterable[str]
) -> ContainerAllocation:
    """What a container with these GPUs gets. Raises AllocationRefused.

    ways: of ENV, DEVICE_NODES and CDI. control_nodes: the CONTROL_NODES that exist on this node.
    """
    wanted = sorted(gpus, key=lambda gpu: gpu.uuid)
    nodes: list[str] = []
    if DEVICE_NODES in ways:
        unnumbered = [gpu.uuid for gpu in wanted if gpu.minor is None]
        if unnumbered:
            raise AllocationRefused(
                resource_name,
                f"the driver does not report the device file of {', '.join(unnumbered)}; set handOver to env or cdi",
            )
        nodes = [*(f"/dev/nvidia{gpu.minor}" for gpu in wanted), *control_nodes]
    return ContainerAllocation(
        device_nodes=tuple(DeviceNode(path, path, "rw") for path in nodes),
        env={VISIBLE_DEVICES: ",".join(gpu.uuid for gpu in wanted)} if ENV in ways else {},
        cdi_devices=tuple(f"{cdi_kind}={gpu.uuid}" for gpu in wanted) if CDI in ways else (),
    )
