"""Devices under the IDs by which they are known: an ID does not change while it is held, or else while it is cordoned. Pure.

A device may have had another ID before: by another link, by its port, by a serial that turned out not to be its own.
"""

from collections.abc import Container
from dataclasses import replace

from msgspec import structs
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices


def as_known(listed: ListedDevices, held: Container[str], cordoned: Container[str] = ()) -> ListedDevices:
    """The same devices, each by the first of its other IDs that is known, unless its own is.

    held: IDs of which one that is not listed would be given out again by another; they count before the cordoned ones, which count
    under each of a device's IDs.
    """
    if not listed.has_aliases:
        return listed
    # parts of one device go by the ID of one device
    groups: dict[str, list[Device]] = {}
    for device in listed.devices.values():
        groups.setdefault(device.parent or device.id, []).append(device)
    # of the devices that do not go by their own ID
    chosen: dict[str, int] = {}
    # an ID that is another device's by now is nobody's alias
    taken = {*listed.devices}
    for group in groups.values():
        number = _known_alias(group, held, taken)
        if number is None:
            number = _known_alias(group, cordoned, taken)
        for device in group:
            # but where pods hold parts of it by several, each part by its own
            its = _known_alias([device], held, taken)
            chosen[device.id] = (number or 0) if its is None else its
        taken.update(device.aliases[chosen[device.id] - 1] for device in group if chosen[device.id])
    if not any(chosen.values()):
        return listed
    renamed = [_renamed(device, chosen[device.id]) for device in listed.devices.values()]
    parents = {
        new: structs.replace(listed.parents[old], id=new)
        for old, new in _parents(listed, renamed)
        if old in listed.parents
    }
    return replace(listed, devices={device.id: device for device in renamed}, parents=parents)


def _known_alias(group: list[Device], known: Container[str], taken: Container[str]) -> int | None:
    """Which alias of these devices they go by, counted from 1; 0: by their own IDs; None: none is known.

    taken: IDs that are others'.
    """
    if any(device.id in known for device in group):
        return 0
    for number in range(1, min(len(device.aliases) for device in group) + 1):
        names = [device.aliases[number - 1] for device in group]
        if any(name in known for name in names) and not any(name in taken for name in names):
            return number
    return None


def _renamed(device: Device, number: int) -> Device:
    if number == 0:
        return device
    new = device.aliases[number - 1]
    others = (device.id, *device.aliases[: number - 1], *device.aliases[number:])
    part = parent_and_number(new) if device.parent else None
    return structs.replace(device, id=new, aliases=others, parent=part[0] if part is not None else device.parent)


def _parents(listed: ListedDevices, renamed: list[Device]) -> set[tuple[str, str]]:
    """Each as it is listed and as its parts go by now."""
    pairs = zip(listed.devices.values(), renamed, strict=True)
    return {(before.parent, after.parent) for before, after in pairs if before.parent}
