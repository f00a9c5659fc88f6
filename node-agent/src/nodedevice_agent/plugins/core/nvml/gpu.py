"""One GPU as its driver describes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """What does not change while the driver runs. What a GPU or driver does not tell is empty or None.

    pci_bus_id: domain:bus:device.function, as sysfs spells it. minor: the N of /dev/nvidiaN.
    """

    uuid: str
    model: str = ""
    memory_bytes: int | None = None
    pci_bus_id: str = ""
    numa_node: int | None = None
    minor: int | None = None

    def numa_nodes(self) -> tuple[int, ...]:
        """As a device list tells it; empty where it is not known."""
        return () if self.numa_node is None else (self.numa_node,)

    def attributes(self) -> dict[str, str]:
        """What an administrator reads beside the device, only what is known."""
        told = {
            "model": self.model,
            "memoryBytes": "" if self.memory_bytes is None else str(self.memory_bytes),
            "pciBusID": self.pci_bus_id,
        }
        return {key: value for key, value in told.items() if value}


def sysfs_bus_id(nvml_bus_id: str) -> str:
    """`00000000:1B:00.0`, as the driver has it, is `0000:1b:00.0` in sysfs; anything else is kept in small letters."""
    domain, colon, rest = nvml_bus_id.strip().lower().partition(":")
    if colon and len(domain) == 8 and domain.startswith("0000"):
        domain = domain[4:]
    return f"{domain}{colon}{rest}"
