"""Settings of the built-in plugins: the `plugins` section and its validation.

An error names the key, the value and the remedy. Paths are the host's.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from nodedevice_api.extended_resources import resource_name_problem

from nodedevice_agent.plugins.nvml.health import APPLICATION_XIDS, HealthRules
from nodedevice_agent.plugins.simulated.devices import MAX_SIMULATED

# The first character of a class belongs to it even if it is ]; a [ that is never closed is a literal.
WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)
PERMISSIONS = re.compile(r"[rwm]{1,3}")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
ID_PREFIX = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,52}[A-Za-z0-9])?")
# More wildcards than this make matching slow; no real path needs them.
_MAX_WILDCARDS = 8
MAX_PATH = 4096
# one item of LD_LIBRARY_PATH; a NUL would end the environment variable
LIBRARY_DIR = re.compile(r"/[^:;\x00-\x1f\x7f]*")
CDI_KIND = re.compile(r"[A-Za-z][A-Za-z0-9.-]*/[A-Za-z][A-Za-z0-9._-]*")

HandOver = Literal["env", "deviceNodes", "cdi"]
XidNumbers = Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=1000)]


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
        _check_path("path", self.path)
        if self.mount_path:
            _check_path("mountPath", self.mount_path)
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
        _check_path("hostPath", self.host_path)
        if self.container_path:
            _check_path("containerPath", self.container_path)


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

    def __post_init__(self) -> None:
        _check_resource_name(self.resource_name)
        repeated = _first_repeated(group.key_pattern() for group in self.groups)
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

    def __post_init__(self) -> None:
        _check_resource_name(self.resource_name)
        if self.id_prefix and not ID_PREFIX.fullmatch(self.id_prefix):
            raise ValueError(
                f"idPrefix: {self.id_prefix!r} must be 1 to 54 of letters, digits, - _ . and begin and end with a letter or digit"
            )

    def prefix(self) -> str:
        """What device IDs begin with."""
        return self.id_prefix or self.resource_name.partition("/")[2][:54]


class NvmlSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All GPUs of a node."""

    # the same as NVIDIA's own plugin, so that pods need no change
    resource_name: str = "nvidia.com/gpu"
    # resource names by pattern of the model (`*T4*`); the first match counts, else resource_name
    model_resource_names: dict[str, str] = field(default_factory=dict)
    # how a container gets its GPUs. env: NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime, which most nodes with GPUs have;
    # deviceNodes: the device files; cdi: CDI names, for specs generated by nvidia-ctk
    hand_over: Annotated[list[HandOver], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["env"])
    # the part before = in a CDI name
    cdi_kind: str = "nvidia.com/gpu"
    # additional Xids that take a GPU out of service, and Xids that do not; docs/gpu.md has the default lists
    critical_xids: XidNumbers = field(default_factory=list)
    harmless_xids: XidNumbers = field(default_factory=list)
    # whether an uncorrectable ECC error takes a GPU out of service; it does, as its results can no longer be trusted
    ecc_errors: Literal["unhealthy", "ignore"] = "unhealthy"
    # how often each GPU is read; urgent problems come as events, so this is for lost GPUs and resets
    poll_seconds: Annotated[float, Meta(ge=1, le=3600)] = 5.0
    # how long a call to the driver may take before its GPU counts as hanging; the slowest healthy calls take a second
    call_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 5.0
    # how often to rescan for missing GPUs: only a new NVML session sees a GPU that came back
    rescan_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    # where libnvidia-ml.so.1 is, for an agent in a container; empty: where the loader finds it
    library_dir: str = ""

    def __post_init__(self) -> None:
        for name in self.resource_names():
            _check_resource_name(name)
        if not CDI_KIND.fullmatch(self.cdi_kind):
            raise ValueError(f"cdiKind: {self.cdi_kind[:400]!r} must be vendor/class, such as nvidia.com/gpu")
        if self.library_dir and not LIBRARY_DIR.fullmatch(self.library_dir):
            raise ValueError(
                f"libraryDir: {self.library_dir[:400]!r} must be one absolute path, such as /usr/lib/x86_64-linux-gnu"
            )
        both = sorted(set(self.critical_xids) & set(self.harmless_xids))
        if both:
            raise ValueError(f"harmlessXids: {both[0]} is in criticalXids too; keep it in one of them")

    def resource_names(self) -> tuple[str, ...]:
        """All resource names that this plugin may serve, each once; resource_name first."""
        return tuple(dict.fromkeys((self.resource_name, *self.model_resource_names.values())))

    def resource_of(self, model: str) -> str:
        """The resource name for GPUs of this model."""
        matching = (name for pattern, name in self.model_resource_names.items() if fnmatchcase(model, pattern))
        return next(matching, self.resource_name)

    def health_rules(self) -> HealthRules:
        harmless = (frozenset(APPLICATION_XIDS) - frozenset(self.critical_xids)) | frozenset(self.harmless_xids)
        return HealthRules(harmless, self.ecc_errors == "unhealthy")


class PluginSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All built-in plugins of a node."""

    generic: Annotated[list[GenericSettings], Meta(max_length=256)] = field(default_factory=list)
    simulated: Annotated[list[SimulatedSettings], Meta(max_length=256)] = field(default_factory=list)
    # NVIDIA's GPUs; `{}` is enough. Unset: GPUs are ignored, as another plugin may serve them.
    nvml: NvmlSettings | None = None
    # Where the agent sees the host's file tree; / for an agent with the host's /dev mounted at /dev.
    host_root: str = "/"

    def __post_init__(self) -> None:
        _check_path("hostRoot", self.host_root)
        repeated = _first_repeated(self.resource_names())
        if repeated:
            raise ValueError(
                f"resourceName: {repeated} is named twice; give each resource one entry, with all its groups"
            )

    def resource_names(self) -> tuple[str, ...]:
        """All resources that these plugins may serve, in order of the plugins."""
        resources: Sequence[GenericSettings | SimulatedSettings] = [*self.generic, *self.simulated]
        gpus = self.nvml.resource_names() if self.nvml is not None else ()
        return (*(resource.resource_name for resource in resources), *gpus)


def _check_resource_name(resource_name: str) -> None:
    problem = resource_name_problem(resource_name)
    if problem:
        raise ValueError(f"resourceName: {resource_name[:400]!r}: {problem}")


def _check_path(key: str, path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"{key}: {path[:400]!r} must be an absolute path, such as /dev/ttyUSB0")
    if len(path) > MAX_PATH or "\0" in path:
        raise ValueError(f"{key}: {path[:400]!r} is not a path: at most {MAX_PATH} characters, none of them NUL")
    if ".." in path.split("/") or "//" in path:
        raise ValueError(f"{key}: {path[:400]!r} must be a plain path, without .. and //")


def _first_repeated(names: Iterable[str]) -> str:
    return next((name for name, count in Counter(names).items() if count > 1), "")
