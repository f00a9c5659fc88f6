"""Settings of the built-in plugins: the `plugins` section. Paths are the host's.

What types do not state is in charts/config_rules.py, and checked before settings are made of it.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, field
from nodedevice_api.parts import PartRules

from nodedevice_agent.plugins.generic.select_settings import SelectSettings
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.patterns import wildcard_count
from nodedevice_agent.plugins.simulated.devices import MAX_SIMULATED

# Of the IDs of physical devices of built-in plugins, behind it: the resource, but for GPUs, which are the same in all resources.
SCOPE: Final = "built-in"
# all of them are one plugin; no resource is called so
GPUS: Final = "GPUs"
GPU_SCOPE: Final = f"{SCOPE} {GPUS}"
# of the Node, set by NVIDIA's GPU Operator: whether programs that use the driver may run there
GPU_CLIENT_LABEL: Final = "nvidia.com/gpu.deploy.client"


class PathSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One path of a device, `*`, `?` and `[...]` allowed."""

    # Absolute, of device files; wildcards stay within one directory.
    path: str
    # The path in the container: empty, the same path; with a trailing /, that directory and the file's own name.
    mount_path: str = ""
    # cgroup permissions; rw, because hardly any program needs to make nodes (m).
    permissions: str = "rw"
    # Whether the device is listed without this file too; a container gets it where it exists, and so may others.
    optional: bool = False


class MountSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A path of the host that is mounted into a container together with its device."""

    # absolute, without wildcards; a directory or a file
    host_path: str
    # the path in the container; empty: the same as on the host
    container_path: str = ""
    # whether the container may only read it
    read_only: bool = False


class GroupSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Paths that make up one device, where a wildcard makes one device per match; or `select` instead of them."""

    # The device's files. Needed without `select`.
    paths: Annotated[list[PathSettings], Meta(min_length=1, max_length=64)] = field(default_factory=list)
    # How many containers may hold each device at once; 1, because most devices cannot be shared.
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    # Further paths that a container gets with the device.
    mounts: Annotated[list[MountSettings], Meta(max_length=64)] = field(default_factory=list)
    # Environment variables of a container with the device.
    env: dict[str, str] = field(default_factory=dict)
    # Regular files count as devices too, and are mounted; off, so that a stray file in /dev is never listed.
    allow_files: bool = False
    # Devices by USB vendor, product and serial, by udev's properties or by subsystem, instead of by `paths`.
    select: SelectSettings | None = None
    # Whether other resources may offer the same files, if they are shared there too; so it is where count is above 1.
    shared: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether a device may be given out several times: by this group, or by several."""
        return self.shared or self.count > 1

    @property
    def named_after(self) -> PathSettings:
        """The path whose file a device is named after, and which each of its devices therefore has. Not of a selection."""
        return min(self.paths, key=lambda path: (path.optional, not wildcard_count(path.path)))

    def key_pattern(self) -> str:
        """What names the group's devices: a path, or what is selected."""
        if self.select is not None:
            return f"select {msgspec.json.encode(self.select).decode()}"
        return self.named_after.path


class GenericSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One resource made of device files."""

    # What pods request, such as example.com/serial.
    resource_name: str
    # Where its devices come from.
    groups: Annotated[list[GroupSettings], Meta(min_length=1, max_length=256)]
    # Rules for devices that several containers may hold (count above 1). Unset: each share is a device like any other.
    parts: PartsSettings | None = None

    @property
    def part_rules(self) -> PartRules | None:
        """None where no device is shared."""
        is_shared = any(group.count > 1 for group in self.groups)
        return self.parts.rules() if self.parts is not None and is_shared else None


class SimulatedSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One resource of simulated devices."""

    # what pods request, such as example.com/device
    resource_name: str
    # how many devices there are
    count: Annotated[int, Meta(ge=0, le=MAX_SIMULATED)] = 1
    # How many NUMA nodes the devices are spread over; 0: devices have no NUMA node.
    numa_nodes: Annotated[int, Meta(ge=0, le=64)] = 0
    # how device IDs begin; empty: the part of the resource name behind the slash
    id_prefix: str = ""
    # How many parts each device has, of which a container requests some; 1: whole devices.
    parts_per_device: Annotated[int, Meta(ge=1, le=1000)] = 1
    # Rules for these parts.
    parts: PartsSettings = PartsSettings()

    @property
    def part_rules(self) -> PartRules | None:
        """None where devices are whole."""
        return self.parts.rules() if self.parts_per_device > 1 else None

    def prefix(self) -> str:
        """What device IDs begin with."""
        return self.id_prefix or self.resource_name.partition("/")[2][:54]


class PluginSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All built-in plugins of a node."""

    # Device files of the node, by path or by what the kernel and udevd say of them.
    generic: Annotated[list[GenericSettings], Meta(max_length=256)] = field(default_factory=list)
    # Devices that are only numbers, to try things out.
    simulated: Annotated[list[SimulatedSettings], Meta(max_length=256)] = field(default_factory=list)
    # NVIDIA's GPUs; `{}` is enough. Unset: GPUs are ignored, as another plugin may serve them.
    nvml: NvmlSettings | None = None
    # Where the agent sees the host's file tree; / for an agent with the host's /dev mounted at /dev.
    host_root: str = "/"

    def may_serve(self, resource_name: str) -> bool:
        is_instance = self.nvml is not None and self.nvml.is_instance_name(resource_name)
        return is_instance or resource_name in self.resource_names()

    def selecting(self) -> frozenset[str]:
        """Resources whose devices are selected, by files that may have other names after a replug or boot."""
        return frozenset(r.resource_name for r in self.generic if any(group.select is not None for group in r.groups))

    def resource_names(self) -> tuple[str, ...]:
        """All resources that these plugins may serve, in order of the plugins, but MIG instances named by profile."""
        resources: Sequence[GenericSettings | SimulatedSettings] = [*self.generic, *self.simulated]
        # the names of whole GPUs even where all are shared: they are GPUs' names in any case
        nvml = self.nvml
        gpus = dict.fromkeys((*nvml.whole_names(), *nvml.resource_names())) if nvml is not None else ()
        return (*(resource.resource_name for resource in resources), *gpus)
