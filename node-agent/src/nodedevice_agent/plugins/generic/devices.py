"""Devices from groups of paths and the files that match them, and what a container gets for each.

A group's plain paths belong to each of its devices. Its wildcard paths are joined by what the wildcards match: `/dev/video*`
with `/dev/media*` makes one device of video0 and media0, and unplugging one camera never re-pairs the files of two others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodedevice_agent.lib.deviceplugin_server.names import device_id, shared_ids
from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    DeviceNode,
    Mount,
    PluginDevice,
    UnknownDevices,
)
from nodedevice_agent.plugins.generic.patterns import wildcard_count

Captures = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DevicePath:
    """One path of a group, possibly with wildcards. A container path with a trailing / is the directory of the file."""

    pattern: str
    container_path: str = ""
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Paths that make up one device, and how many containers may hold it at once."""

    paths: tuple[DevicePath, ...]
    count: int = 1
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    allow_files: bool = False


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the host that matches a pattern."""

    path: str
    captures: Captures = ()
    is_device: bool = True
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GenericDevice:
    """One device ID and what a container gets with it."""

    listed: PluginDevice
    allocation: ContainerAllocation


Found = Mapping[str, Iterable[FoundFile]]


def generic_devices(groups: Iterable[DeviceGroup], found: Found) -> dict[str, GenericDevice]:
    """All devices by ID, sorted. found: the files that match each pattern.

    A file that matches patterns of two groups belongs to the first group.
    """
    devices: dict[str, GenericDevice] = {}
    for group in groups:
        for files in _file_sets(group, found):
            for listed_id in shared_ids(_base_id(group, files), group.count):
                devices.setdefault(listed_id, _device(listed_id, group, files))
    return dict(sorted(devices.items()))


def allocate(resource_name: str, devices: Mapping[str, GenericDevice], ids: Iterable[str]) -> ContainerAllocation:
    """What a container with these devices gets; several shares of one device give its files once.

    Raises UnknownDevices, and AllocationRefused when two devices have the same path in the container.
    """
    wanted = sorted(set(ids))
    unknown = tuple(name for name in wanted if name not in devices)
    if unknown:
        raise UnknownDevices(resource_name, unknown)
    parts = [devices[name].allocation for name in wanted]
    nodes = dict.fromkeys(node for part in parts for node in part.device_nodes)
    mounts = dict.fromkeys(mount for part in parts for mount in part.mounts)
    _check_container_paths(resource_name, [*nodes, *mounts])
    return ContainerAllocation(tuple(nodes), tuple(mounts), _joined_env(resource_name, parts))


def _file_sets(group: DeviceGroup, found: Found) -> Iterator[tuple[FoundFile, ...]]:
    """The files of each device of the group, in the order of the group's paths."""
    per_path = [
        {file.captures: file for file in found.get(path.pattern, ()) if file.is_device or group.allow_files}
        for path in group.paths
    ]
    wildcards = [bool(wildcard_count(path.pattern)) for path in group.paths]
    keys: set[Captures] | None = None
    for matches, is_wildcard in zip(per_path, wildcards, strict=True):
        if is_wildcard:
            keys = set(matches) if keys is None else keys & set(matches)
    for key in sorted(keys if keys is not None else {()}):
        files = [
            matches.get(key if is_wildcard else ()) for matches, is_wildcard in zip(per_path, wildcards, strict=True)
        ]
        whole = tuple(file for file in files if file is not None)
        if len(whole) == len(files):
            yield whole


def _base_id(group: DeviceGroup, files: tuple[FoundFile, ...]) -> str:
    """The ID of a device: from the first path that differs between the group's devices."""
    distinct = (file for path, file in zip(group.paths, files, strict=True) if wildcard_count(path.pattern))
    return device_id(next(distinct, files[0]).path)


def _device(listed_id: str, group: DeviceGroup, files: tuple[FoundFile, ...]) -> GenericDevice:
    nodes, mounts = [], []
    for path, file in zip(group.paths, files, strict=True):
        target = _container_path(path, file)
        if file.is_device:
            nodes.append(DeviceNode(file.path, target, path.permissions))
        else:
            # a runtime makes device nodes for devices only; a regular file has to be mounted
            mounts.append(Mount(file.path, target, "w" not in path.permissions))
    numa_nodes = tuple(sorted({node for file in files for node in file.numa_nodes}))
    allocation = ContainerAllocation(tuple(nodes), (*mounts, *group.mounts), group.env)
    return GenericDevice(PluginDevice(listed_id, True, numa_nodes), allocation)


def _container_path(path: DevicePath, file: FoundFile) -> str:
    if path.container_path.endswith("/"):
        return path.container_path + file.path.rpartition("/")[2]
    return path.container_path or file.path


def _check_container_paths(resource_name: str, things: Iterable[DeviceNode | Mount]) -> None:
    taken: dict[str, str] = {}
    for thing in things:
        other = taken.setdefault(thing.container_path, thing.host_path)
        if other != thing.host_path:
            raise AllocationRefused(
                resource_name,
                f"{other} and {thing.host_path} have the same path {thing.container_path} in the container; "
                "end mountPath with / so that each keeps its own name, or request one device per container",
            )


def _joined_env(resource_name: str, parts: Iterable[ContainerAllocation]) -> dict[str, str]:
    env: dict[str, str] = {}
    for part in parts:
        for key, value in part.env.items():
            if env.setdefault(key, value) != value:
                raise AllocationRefused(
                    resource_name,
                    f"two groups set {key} to different values; a container cannot hold devices of both",
                )
    return env
