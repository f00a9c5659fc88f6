"""MIG instances: how the driver divides a GPU in MIG mode, and how each instance is named and handed over.

An instance here is a MIG device: a compute instance of a GPU instance. Names of profiles are NVIDIA's: `1g.10gb` is one slice of
the GPU with 10 GB; `1c.2g.20gb` one compute slice of a GPU instance with two; `+me` and the like are engines besides.

Source: NVIDIA MIG user guide; NVIDIA's device plugin has the same names.
"""

import math
from collections.abc import Mapping

from msgspec import Struct

# parts of a GPU's memory that instances have multiples of
_MEMORY_SLICES = 8
_GIB = 1 << 30
_MIB_SHIFT = 20
CAPABILITY_MINORS = "/proc/driver/nvidia-caps/mig-minors"


class MigInstance(Struct, frozen=True):
    """uuid: MIG-…, what CUDA and the container toolkits take. The numbers of the two instances are the driver's."""

    uuid: str
    profile: str
    gpu_instance: int
    compute_instance: int
    memory_mib: int

    def resource_name(self, domain: str) -> str:
        """A name of its own for each profile: `+` is not allowed there."""
        return f"{mig_prefix(domain)}{self.profile.replace('+', '.')}"

    def attributes(self) -> dict[str, str]:
        """In addition to the GPU's attributes; its memory replaces the GPU's."""
        return {
            "profile": self.profile,
            "memoryBytes": str(self.memory_mib << _MIB_SHIFT),
            "gpuInstance": str(self.gpu_instance),
            "computeInstance": str(self.compute_instance),
        }


def mig_prefix(domain: str) -> str:
    return f"{domain}/mig-"


def profile_name(compute_slices: int, slices: int, memory_mib: int, gpu_bytes: int | None, suffix: str = "") -> str:
    """gpu_bytes: the memory of the whole GPU. The name has the memory of the instance's slices, not its exact memory."""
    instance_bytes = memory_mib << _MIB_SHIFT
    total = gpu_bytes or instance_bytes or 1
    part = math.ceil(instance_bytes / total * _MEMORY_SLICES) / _MEMORY_SLICES
    # a half is rounded up
    gigabytes = math.floor(part * math.ceil(total / _GIB) + 0.5)
    compute = f"{compute_slices}c." if compute_slices != slices else ""
    return f"{compute}{slices}g.{gigabytes}gb{suffix}"


def capability_nodes(minors: Mapping[str, int], gpu_minor: int | None, instance: MigInstance) -> tuple[str, ...]:
    """The device files that open the two instances; empty if the driver does not have them. minors: see capability_minors()."""
    gpu_instance = f"gpu{gpu_minor}/gi{instance.gpu_instance}"
    both = (f"{gpu_instance}/access", f"{gpu_instance}/ci{instance.compute_instance}/access")
    return tuple(capability_file(minors[name]) for name in both) if minors.keys() >= {*both} else ()


def capability_minors(text: str) -> dict[str, int]:
    """Minor numbers of /dev/nvidia-caps by capability, such as gpu0/gi1/ci0/access. text: of the file CAPABILITY_MINORS."""
    words = (line.split() for line in text.splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) == 2 and line[1].isdecimal()}


def capability_file(minor: int) -> str:
    return f"/dev/nvidia-caps/nvidia-cap{minor}"
