"""The devices that a plugin lists, and what a container gets for each. Pure."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from nodedevice_api.parts import part_id

from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    DeviceNode,
    Mount,
    PluginDevice,
    shared_ids,
)
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.generic.offers import Offer
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings, SelectSettings


class GenericDevice(Struct, frozen=True, gc=False):
    """One device ID and what a container gets with it. is_unread: it could not be read which device it is."""

    listed: PluginDevice
    allocation: ContainerAllocation
    is_unread: bool = False


def generic_devices(
    groups: Sequence[GroupSettings], offers: Iterable[Offer], most: int = sys.maxsize, *, are_parts: bool = False
) -> dict[str, GenericDevice]:
    """The first devices by ID, sorted. offers: each of another device. are_parts: the listed devices are parts."""
    offers = [*_first(groups, sorted(offers, key=lambda offer: offer.id), most)]
    ids = {offer.id: _ids(offer.id, groups[offer.group].count, are_parts) for offer in offers}
    taken = {each for listed in ids.values() for each in listed}
    named = Counter(alias for offer in offers for alias in offer.aliases)
    devices: dict[str, GenericDevice] = {}
    for offer in offers:
        group = groups[offer.group]
        aliases = [_ids(alias, group.count, are_parts) for alias in offer.aliases if named[alias] == 1]
        aliases = [each for each in aliases if taken.isdisjoint(each)]
        allocation = _allocation(group, offer)
        is_unread = any(file.is_unread for file in offer.whole.own_files)
        for number, listed_id in enumerate(ids[offer.id]):
            others = tuple(alias[number] for alias in aliases)
            listed = _listed(listed_id, offer, others, offer.id if are_parts else "")
            devices[listed_id] = GenericDevice(listed, allocation, is_unread)
    return dict(sorted(devices.items())[:most])


def device_count(groups: Sequence[GroupSettings], offers: Iterable[Offer]) -> int:
    """How many devices there would be without a limit: one for each container that may have one."""
    return sum(groups[offer.group].count for offer in offers)


def _first(groups: Sequence[GroupSettings], offers: Iterable[Offer], most: int) -> Iterator[Offer]:
    """The leading offers that together have `most` devices."""
    for offer in offers:
        if most <= 0:
            return
        most -= groups[offer.group].count
        yield offer


def _ids(name: str, count: int, are_parts: bool) -> tuple[str, ...]:
    """IDs of a device and its shares; if all devices are parts, an unshared one has one part."""
    return (part_id(name, 0),) if are_parts and count == 1 else shared_ids(name, count)


def allocate(resource_name: str, devices: Mapping[str, GenericDevice], ids: Iterable[str]) -> ContainerAllocation:
    """Additions to a container with these devices; several shares of one device give its files once.

    Raises AllocationRefused when two devices have the same path in the container.
    """
    parts = [devices[name].allocation for name in ids]
    nodes = dict.fromkeys(node for part in parts for node in part.device_nodes)
    mounts = dict.fromkeys(mount for part in parts for mount in part.mounts)
    _check_container_paths(resource_name, [*nodes, *mounts])
    return ContainerAllocation(tuple(nodes), tuple(mounts), _joined_env(resource_name, parts))


def _listed(listed_id: str, offer: Offer, aliases: tuple[str, ...], parent: str) -> PluginDevice:
    whole = offer.whole
    return PluginDevice(
        listed_id,
        numa_nodes=tuple(sorted({node for file in whole.files for node in file.numa_nodes})),
        attributes=whole.attributes,
        parent=parent,
        identity=offer.identity,
        files=offer.numbers,
        is_shared=offer.is_shared,
        aliases=aliases,
    )


def _allocation(group: GroupSettings, offer: Offer) -> ContainerAllocation:
    whole = offer.whole
    nodes, mounts = [], []
    wanted: Iterable[PathSettings | SelectSettings] = [group.select] * len(whole.files) if group.select else whole.paths
    for path, file in zip(wanted, whole.files, strict=True):
        target = _container_path(path, file)
        if file.is_device:
            nodes.append(DeviceNode(file.path, target, path.permissions))
        else:
            # a runtime makes device nodes for devices only; a regular file has to be mounted
            mounts.append(Mount(file.path, target, "w" not in path.permissions))
    mounts += [Mount(m.host_path, m.container_path or m.host_path, m.read_only) for m in group.mounts]
    return ContainerAllocation(tuple(nodes), tuple(mounts), group.env)


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
