"""Devices from groups of paths and the files that match them, and what a container gets for each.

A group's plain paths belong to each of its devices. Its wildcard paths are joined by what the wildcards match: `/dev/video*`
with `/dev/media*` makes one device of video0 and media0, and unplugging one camera never re-pairs the files of two others.
Where a group selects instead, the files of each physical device are found together.
As in a shell, a wildcard stays within one directory level, and a leading dot is matched only by a leading dot.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct
from nodedevice_api.parts import part_id

from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    DeviceNode,
    Mount,
    PluginDevice,
    device_id,
    shared_ids,
)
from nodedevice_agent.plugins.generic.select_settings import SelectSettings
from nodedevice_agent.plugins.patterns import WILDCARD, Captures, is_match, wildcard_count
from nodedevice_agent.plugins.settings import GroupSettings, PathSettings


class FoundFile(Struct, frozen=True):
    """A file of the host that matches a pattern; a directory is one, and never a device's.

    kernel_path: where its links lead. number: of a device file, such as c188:0. tokens: what says which device it is of (see
    identity.py); none of a file that comes with devices and is none (is_shared_file).
    """

    path: str
    captures: Captures = ()
    is_device: bool = True
    numa_nodes: tuple[int, ...] = ()
    is_directory: bool = False
    kernel_path: str = ""
    number: str = ""
    tokens: tuple[str, ...] = ()
    is_shared_file: bool = False


class FoundFunction(Struct, frozen=True):
    """A device and all its files. attributes: sorted by name. paths: the setting of each file; empty for what a group selects."""

    id: str
    files: tuple[FoundFile, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    paths: tuple[PathSettings, ...] = ()


class Incomplete(Struct, frozen=True):
    """A device that is not listed, as files of it are missing. name: a file that is there, or the ID of what a group selects."""

    name: str
    missing: tuple[str, ...]


class GenericDevice(Struct, frozen=True):
    """One device ID and what a container gets with it."""

    listed: PluginDevice
    allocation: ContainerAllocation


Found = Mapping[str, Iterable[FoundFile]]
Selected = Mapping[int, Iterable[FoundFunction]]


def generic_devices(
    groups: Iterable[GroupSettings], found: Found, selected: Selected = MappingProxyType({}), *, are_parts: bool = False
) -> dict[str, GenericDevice]:
    """All devices by ID, sorted. found: the files that match each pattern; selected: the devices of groups that select, by the
    group's index. are_parts: what is listed are parts of devices.

    A device that two groups name belongs to the first one.
    """
    devices: dict[str, GenericDevice] = {}
    # files of paths and of selections: one file has two IDs, by how it was found
    taken: dict[bool, set[str]] = {False: set(), True: set()}
    for index, group in enumerate(groups):
        is_select = group.select is not None
        for whole in (*_functions(group, found), *selected.get(index, ())):
            own = _own(whole)
            if own & taken[not is_select]:
                continue
            taken[is_select] |= own
            # where all are parts, one that is not shared has one part
            ids = (part_id(whole.id, 0),) if are_parts and group.count == 1 else shared_ids(whole.id, group.count)
            for listed_id in ids:
                devices.setdefault(listed_id, _device(listed_id, whole.id if are_parts else "", group, whole))
    return dict(sorted(devices.items()))


def allocate(resource_name: str, devices: Mapping[str, GenericDevice], ids: Iterable[str]) -> ContainerAllocation:
    """What a container with these devices gets; several shares of one device give its files once.

    Raises AllocationRefused when two devices have the same path in the container.
    """
    parts = [devices[name].allocation for name in ids]
    nodes = dict.fromkeys(node for part in parts for node in part.device_nodes)
    mounts = dict.fromkeys(mount for part in parts for mount in part.mounts)
    _check_container_paths(resource_name, [*nodes, *mounts])
    return ContainerAllocation(tuple(nodes), tuple(mounts), _joined_env(resource_name, parts))


def incomplete_devices(groups: Iterable[GroupSettings], found: Found) -> Iterator[Incomplete]:
    """Devices that have some of their files, and not all but the optional ones. found: as above."""
    for group in groups:
        for captures, files in _file_sets(group, found):
            required = [(path.path, file) for path, file in zip(group.paths, files, strict=True) if not path.optional]
            present = [file for _, file in required if file is not None]
            missing = [path for path, file in required if file is None]
            has_no_match = not captures and any(wildcard_count(path) for path in missing)
            if not missing or not present or has_no_match:
                continue
            named = [_filled(path, captures) if wildcard_count(path) else path for path in missing]
            # video7 is not meant where media[0-3] belongs to it
            if all(path == name or is_match(path, name) for path, name in zip(missing, named, strict=True)):
                yield Incomplete(max(present, key=lambda file: bool(file.captures)).path, tuple(named))


def is_usable(group: GroupSettings, file: FoundFile) -> bool:
    """Whether a container can be given this file."""
    return file.is_device or (group.allow_files and not file.is_directory)


def _functions(group: GroupSettings, found: Found) -> Iterator[FoundFunction]:
    named_after = group.named_after if group.paths else None
    for _, files in _file_sets(group, found):
        by_path = [*zip(group.paths, files, strict=True)]
        if all(file is not None or path.optional for path, file in by_path):
            present = {path: file for path, file in by_path if file is not None}
            # of what differs between the group's devices, and not of a file that may come and go
            distinct = next(file for path, file in present.items() if path == named_after)
            yield FoundFunction(device_id(distinct.path), tuple(present.values()), paths=tuple(present))


def _filled(pattern: str, captures: Captures) -> str:
    """The path in which the wildcards match these texts. captures: one for each wildcard."""
    texts = iter(captures)
    return "/".join(WILDCARD.sub(lambda _: next(texts, ""), part) for part in pattern.split("/"))


def _own(whole: FoundFunction) -> set[str]:
    """The files that no other device may have: not the optional ones, nor a plain path, which is in all devices of a group."""
    required = [file for index, file in enumerate(whole.files) if not (whole.paths and whole.paths[index].optional)]
    return {file.path for file in required if file.captures} or {file.path for file in required}


def _file_sets(group: GroupSettings, found: Found) -> Iterator[tuple[Captures, list[FoundFile | None]]]:
    """What the wildcards match for each device of the group, and its files in the order of the group's paths."""
    if not group.paths:
        return
    per_path = [
        {file.captures: file for file in found.get(path.path, ()) if is_usable(group, file)} for path in group.paths
    ]
    wild = [
        matches
        for path, matches in zip(group.paths, per_path, strict=True)
        if wildcard_count(path.path) and not path.optional
    ]
    for captures in sorted({captures for matches in wild for captures in matches}) or [()]:
        # a plain path captures nothing, and belongs to each device
        yield captures, [matches.get(captures) or matches.get(()) for matches in per_path]


def _device(listed_id: str, parent: str, group: GroupSettings, whole: FoundFunction) -> GenericDevice:
    nodes, mounts = [], []
    wanted: Iterable[PathSettings | SelectSettings] = [group.select] * len(whole.files) if group.select else whole.paths
    for path, file in zip(wanted, whole.files, strict=True):
        target = _container_path(path, file)
        if file.is_device:
            nodes.append(DeviceNode(file.path, target, path.permissions))
        else:
            # a runtime makes device nodes for devices only; a regular file has to be mounted
            mounts.append(Mount(file.path, target, "w" not in path.permissions))
    numa_nodes = tuple(sorted({node for file in whole.files for node in file.numa_nodes}))
    mounts += [Mount(m.host_path, m.container_path or m.host_path, m.read_only) for m in group.mounts]
    allocation = ContainerAllocation(tuple(nodes), tuple(mounts), group.env)
    return GenericDevice(
        PluginDevice(listed_id, True, numa_nodes, attributes=whole.attributes, parent=parent), allocation
    )


def _container_path(path: PathSettings | SelectSettings, file: FoundFile) -> str:
    if path.mount_path.endswith("/"):
        return path.mount_path + file.path.rpartition("/")[2]
    return path.mount_path or file.path


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
                    resource_name, f"two groups set {key} to different values; a container cannot hold devices of both"
                )
    return env
