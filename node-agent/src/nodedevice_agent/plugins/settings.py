"""Settings of the built-in plugins: the `plugins` section and its validation.

An error names the key, the value and the remedy. Paths are the host's.
"""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, field
from nodedevice_api.parts import PartRules

from nodedevice_agent.plugins.checks import check_path, check_resource_name, first_repeated
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.simulated.devices import MAX_SIMULATED

# The first character of a class belongs to it even if it is ]; a [ that is never closed is a literal.
WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)
PERMISSIONS = re.compile(r"[rwm]{1,3}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
ID_PREFIX = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,52}[A-Za-z0-9])?")
# More wildcards than this make matching slow; no real path needs them.
_MAX_WILDCARDS = 8


def wildcard_count(pattern: str) -> int:
    """Number of wildcards in a path pattern, or in a part of it; 0 for a plain path."""
    return len(WILDCARD.findall(pattern))


class PathSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One path of a device, `*`, `?` and `[...]` allowed."""

    path: str
    # The path in the container: empty, the same path; with a trailing /, that directory and the file's own name.
    mount_path: str = ""
    # cgroup permissions; rw, because hardly any program needs to make nodes (m).
    permissions: str = "rw"

    def __post_init__(self) -> None:
        check_path("path", self.path)
        if self.mount_path:
            check_path("mountPath", self.mount_path)
        if self.path.endswith("/"):
            raise ValueError(f"path: {self.path!r} names a directory; name device files, such as {self.path}*")
        if "**" in self.path:
            raise ValueError(
                f"path: {self.path!r} has **; a wildcard stays within one directory, so write one * per level"
            )
        if wildcard_count(self.path) > _MAX_WILDCARDS:
            raise ValueError(f"path: {self.path!r} has more than {_MAX_WILDCARDS} wildcards; use fewer")
        if not PERMISSIONS.fullmatch(self.permissions) or len(set(self.permissions)) != len(self.permissions):
            raise ValueError(
                f"permissions: {self.permissions!r} must be some of the letters r, w and m, each once; try rw"
            )


class MountSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A path of the host that is mounted into a container together with its device."""

    host_path: str
    # empty: the same path as on the host
    container_path: str = ""
    read_only: bool = False

    def __post_init__(self) -> None:
        check_path("hostPath", self.host_path)
        if self.container_path:
            check_path("containerPath", self.container_path)


class GroupSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Paths that make up one device; a wildcard makes one device per match."""

    paths: Annotated[list[PathSettings], Meta(min_length=1, max_length=64)]
    # How many containers may hold each device at once; 1, because most devices cannot be shared.
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    mounts: Annotated[list[MountSettings], Meta(max_length=64)] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    # Regular files count as devices too, and are mounted; off, so that a stray file in /dev is never listed.
    allow_files: bool = False

    def __post_init__(self) -> None:
        counts = {wildcard_count(path.path) for path in self.paths} - {0}
        if len(counts) > 1:
            raise ValueError(
                "paths: wildcard paths of one group are joined by what their wildcards match, so each needs the same "
                "number of wildcards; split the group"
            )
        for key in self.env:
            if not ENV_NAME.fullmatch(key):
                raise ValueError(f"env: {key!r} is not the name of an environment variable; use letters, digits and _")

    def key_pattern(self) -> str:
        """The path that names the group's devices."""
        return next((path.path for path in self.paths if wildcard_count(path.path)), self.paths[0].path)


class GenericSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One resource made of device files."""

    resource_name: str
    groups: Annotated[list[GroupSettings], Meta(min_length=1, max_length=256)]
    # Rules for devices that several containers may hold (count above 1). Unset: each share is a device like any other.
    parts: PartsSettings | None = None

    @property
    def part_rules(self) -> PartRules | None:
        """None where no device is shared."""
        is_shared = any(group.count > 1 for group in self.groups)
        return self.parts.rules() if self.parts is not None and is_shared else None

    def __post_init__(self) -> None:
        check_resource_name(self.resource_name)
        repeated = first_repeated(group.key_pattern() for group in self.groups)
        if repeated:
            raise ValueError(
                f"groups: two groups of {self.resource_name} are named after {repeated}; join them or drop one"
            )


class SimulatedSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One resource of simulated devices."""

    resource_name: str
    count: Annotated[int, Meta(ge=0, le=MAX_SIMULATED)] = 1
    # How many NUMA nodes the devices are spread over; 0: devices have no NUMA node.
    numa_nodes: Annotated[int, Meta(ge=0, le=64)] = 0
    # empty: the part of the resource name behind the slash
    id_prefix: str = ""
    # How many parts each device has, of which a container requests some; 1: whole devices.
    parts_per_device: Annotated[int, Meta(ge=1, le=1000)] = 1
    # Rules for these parts.
    parts: PartsSettings = PartsSettings()

    @property
    def part_rules(self) -> PartRules | None:
        """None where devices are whole."""
        return self.parts.rules() if self.parts_per_device > 1 else None

    def __post_init__(self) -> None:
        check_resource_name(self.resource_name)
        if self.count * self.parts_per_device > MAX_SIMULATED:
            raise ValueError(
                f"partsPerDevice: {self.count} devices of {self.parts_per_device} parts are too many; "
                f"simulate {MAX_SIMULATED} parts at most"
            )
        if self.id_prefix and not ID_PREFIX.fullmatch(self.id_prefix):
            raise ValueError(
                f"idPrefix: {self.id_prefix!r} must be 1 to 54 of letters, digits, - _ . and begin and end with a letter or digit"
            )

    def prefix(self) -> str:
        """What device IDs begin with."""
        return self.id_prefix or self.resource_name.partition("/")[2][:54]


class PluginSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All built-in plugins of a node."""

    generic: Annotated[list[GenericSettings], Meta(max_length=256)] = field(default_factory=list)
    simulated: Annotated[list[SimulatedSettings], Meta(max_length=256)] = field(default_factory=list)
    # NVIDIA's GPUs; `{}` is enough. Unset: GPUs are ignored, as another plugin may serve them.
    nvml: NvmlSettings | None = None
    # Where the agent sees the host's file tree; / for an agent with the host's /dev mounted at /dev.
    host_root: str = "/"

    def __post_init__(self) -> None:
        check_path("hostRoot", self.host_root)
        repeated = first_repeated(self.resource_names())
        if repeated:
            raise ValueError(
                f"resourceName: {repeated} is named twice; give each resource one entry, with all its groups"
            )

    def may_serve(self, resource_name: str) -> bool:
        is_instance = self.nvml is not None and self.nvml.is_instance_name(resource_name)
        return is_instance or resource_name in self.resource_names()

    def resource_names(self) -> tuple[str, ...]:
        """All resources that these plugins may serve, in order of the plugins, but MIG instances named by profile."""
        resources: Sequence[GenericSettings | SimulatedSettings] = [*self.generic, *self.simulated]
        # the names of whole GPUs even where all are shared: they are GPUs' names in any case
        nvml = self.nvml
        gpus = dict.fromkeys((*nvml.whole_names(), *nvml.resource_names())) if nvml is not None else ()
        return (*(resource.resource_name for resource in resources), *gpus)
