"""One GPU as its driver describes it."""

import re
from dataclasses import dataclass, replace

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
        return replace(
            self,
            model=self.model or before.model,
            memory_bytes=before.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            pci_bus_id=self.pci_bus_id or before.pci_bus_id,
            numa_node=before.numa_node if self.numa_node is None else self.numa_node,
            minor=before.minor if self.minor is None else self.minor,
            not_supported=self.not_supported or before.not_supported,
        )

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
