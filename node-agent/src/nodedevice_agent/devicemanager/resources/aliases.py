"""Devices under the IDs by which they are known: an ID does not change while it is held or cordoned. Pure.

A device may have had another ID before: by another link, by its port, by a serial that turned out not to be its own.
"""

from collections.abc import Container
from dataclasses import replace

from msgspec import structs
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices


def as_known(listed: ListedDevices, known: Container[str]) -> ListedDevices:
    """The same devices, each by the first of its other IDs that is known, unless its own is. known: held or cordoned IDs."""
    if not listed.has_aliases:
        return listed
    # parts of one device go by the ID of one device
    groups: dict[str, list[Device]] = {}
    for device in listed.devices.values():
        groups.setdefault(device.parent or device.id, []).append(device)
    chosen: dict[str, int] = {}
    # an ID that is another device's by now is nobody's alias
    taken = {*listed.devices}
    for name, group in groups.items():
        number = _known_alias(group, known, taken)
        if number:
            chosen[name] = number
            taken.update(device.aliases[number - 1] for device in group)
    if not chosen:
        return listed
    renamed = [_renamed(device, chosen.get(device.parent or device.id, 0)) for device in listed.devices.values()]
    parents = {
        new: structs.replace(listed.parents[old], id=new)
        for old, new in _new_parents(listed, renamed).items()
        if old in listed.parents
    }
    return replace(listed, devices={device.id: device for device in renamed}, parents=parents)


def _known_alias(group: list[Device], known: Container[str], taken: Container[str]) -> int:
    """Which alias of these devices they go by, counted from 1; 0 for none. taken: IDs that are others'."""
    if any(device.id in known for device in group):
        return 0
    for number in range(1, min(len(device.aliases) for device in group) + 1):
        names = [device.aliases[number - 1] for device in group]
        if any(name in known for name in names) and not any(name in taken for name in names):
            return number
    return 0


def _renamed(device: Device, number: int) -> Device:
    if number == 0:
        return device
    new = device.aliases[number - 1]
    others = (device.id, *device.aliases[: number - 1], *device.aliases[number:])
    part = parent_and_number(new) if device.parent else None
    return structs.replace(device, id=new, aliases=others, parent=part[0] if part is not None else device.parent)


def _new_parents(listed: ListedDevices, renamed: list[Device]) -> dict[str, str]:
    """By the parent that is listed."""
    pairs = zip(listed.devices.values(), renamed, strict=True)
    return {before.parent: after.parent for before, after in pairs if before.parent}
