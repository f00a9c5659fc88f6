"""Identities of GPUs' devices, in addition to their IDs, and the device files that containers get, with their numbers.

A GPU is identified by its UUID, and for now also by the numbers of its /dev/nvidiaN and its files in /dev/dri: the generic plugin
may list the same GPU as a file. Such a number may go to another GPU at a boot, at a re-bind, and when the driver is loaded again.
The GPU's place in sysfs does not identify it: a boot numbers the buses, and another GPU may be in the same slot.

Files are names that a container gets; the device manager compares them with the names in a stored response. They are the device
files with deviceNodes in handOver, and the CDI name while a container may get the device by it. UUIDs alone fit any numbers.

Source: Linux kernel, Documentation/admin-guide/devices.txt (char 195), and NVIDIA's open kernel modules: nv-chardev-numbers.h.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.mig import capability_nodes

# of /dev/nvidiaN; /dev/nvidia-caps has a different one after each boot
_MAJOR = 195
# one each of its GPU, its GPU instance and its compute instance
_FILES_OF_INSTANCE = 3

Files = tuple[tuple[str, str], ...]


class OnHost(Struct, frozen=True):
    """The host's current device files. numbers: of existing files, by path, such as c195:0. capabilities: see mig.

    graphics: by UUID, the numbers of its files in /dev/dri. hands_over_files: whether containers get device files.
    ways: by UUID of a GPU or an instance, how a container would get it now, if decided for each. cdi_names: by UUID, the
    CDI name of each that a container may get by it. program: how an administrator types this program.
    """

    numbers: Mapping[str, str] = field(default_factory=dict)
    capabilities: Mapping[str, int] = field(default_factory=dict)
    graphics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hands_over_files: bool = False
    ways: Mapping[str, str] = field(default_factory=dict)
    cdi_names: Mapping[str, str] = field(default_factory=dict)
    program: str = "nodedevice-agent"

    def attributes(self, uuid: str) -> dict[str, str]:
        """For administrators, in addition to the GPU's own."""
        return {"handOver": self.ways[uuid]} if uuid in self.ways else {}

    def identity(self, gpu: Gpu) -> tuple[str, ...]:
        """Also for each part of it; for an instance, in addition to its own UUID."""
        graphics = self.graphics.get(gpu.uuid, ())
        if gpu.minor is None:
            return (gpu.uuid, *graphics)
        return (gpu.uuid, self.numbers.get(gpu_file(gpu.minor), f"c{_MAJOR}:{gpu.minor}"), *graphics)

    def files(self, device: GpuDevice) -> Files:
        """Files of a GPU, a part of it, or an instance: number by path, UUID by CDI name, sorted."""
        uuid = device.uuid
        named = [(self.cdi_names[uuid], uuid)] if uuid in self.cdi_names else []
        paths = device_files(device, self.capabilities) if self.hands_over_files else ()
        return tuple(sorted([*named, *((path, self.numbers[path]) for path in paths if path in self.numbers)]))


UNKNOWN = OnHost()


def device_files(device: GpuDevice, capabilities: Mapping[str, int]) -> tuple[str, ...]:
    """The device files of a GPU or an instance, as far as the driver numbers them. capabilities: see mig."""
    gpu, instance = device.gpu, device.instance
    own = () if gpu.minor is None else (gpu_file(gpu.minor),)
    return own if instance is None else (*own, *capability_nodes(capabilities, gpu.minor, instance))


def is_numbered(device: GpuDevice, capabilities: Mapping[str, int]) -> bool:
    """Whether the driver numbers all of its device files."""
    return len(device_files(device, capabilities)) == (1 if device.instance is None else _FILES_OF_INSTANCE)


def gpu_file(minor: int) -> str:
    return f"/dev/nvidia{minor}"
