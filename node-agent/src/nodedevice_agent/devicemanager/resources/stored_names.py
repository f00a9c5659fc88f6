"""Renames devices to their stored IDs: an ID that is held or cordoned never means another device. Pure.

The ID of a device that is configured by a path comes from the kernel's name, which passes to another device at a boot or a replug.
The device with the identity that was stored with the ID keeps it under any name. Another device that has the name now gets another
ID until the stored one is released.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import structs
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import NOTHING, Device, ListedDevices, part_number
from nodedevice_agent.identity import Sameness, is_moved, lasting, made_id, same_device

# of a generated ID, so that it stays within the limit of device IDs
_LONGEST_BASE = 100

# the identity that was stored with each ID, as tokens
Stored = Mapping[str, tuple[str, ...]]


def with_stored_ids(listed: ListedDevices, stored: Stored) -> ListedDevices:
    """Rename devices to their stored IDs, which no other device may use."""
    if not stored or not listed.has_identities:
        return listed
    taken = {i for i in stored if i in listed.devices and not leads_to(stored[i], listed.devices[i])}
    without = {d.id: without for d in listed.devices.values() if (without := _without_aliases(d, stored)) is not d}
    found = _moved(listed, stored, taken)
    if not taken and not without and not found:
        return listed
    names = found | dict(_other_names(listed, stored, taken - found.keys(), found.values()))
    renamed = [
        (device, _named(without.get(device.id, device), names.get(device.id, device.id)))
        for device in listed.devices.values()
    ]
    return replaced(listed, renamed)


def leads_to(stored: tuple[str, ...], device: Device) -> bool:
    """Whether an ID with that stored identity stands for this device. Without a lasting token the name itself counts."""
    return not lasting(stored) or same_device(stored, device.identity) is Sameness.SAME


def replaced(listed: ListedDevices, renamed: Iterable[tuple[Device, Device]]) -> ListedDevices:
    """The list with each device under its new ID; the details of parents are renamed as well."""
    renamed = [*renamed]
    parents = {
        new: structs.replace(listed.parents[old], id=new)
        for old, new in {(before.parent, after.parent) for before, after in renamed if before.parent}
        if old in listed.parents
    }
    devices = {device.id: device for _, device in renamed}
    return structs.replace(listed, devices=devices, parents=parents or NOTHING)


def renamed_device(device: Device, new: str, aliases: tuple[str, ...], listed_as: str) -> Device:
    """Rename a device from the ID that its plugin lists. listed_as: empty for an ID that the plugin knows as an alias."""
    part = parent_and_number(new) if device.parent else None
    parent = part[0] if part is not None else device.parent
    return structs.replace(device, id=new, aliases=aliases, parent=parent, listed_as=listed_as)


def _moved(listed: ListedDevices, stored: Stored, taken: Collection[str]) -> dict[str, str]:
    """By listed ID: the stored ID of a device that is listed under another name."""
    known = {i for i in stored if i in listed.devices and i not in taken}
    by_alias = {alias for d in listed.devices.values() for alias in d.aliases if alias in stored}
    sought = [i for i in stored if i not in known and lasting(stored[i])]
    near: dict[str, list[Device]] = {token: [] for i in sought for token in lasting(stored[i])}
    for device in listed.devices.values() if near else ():
        for token in device.identity if device.id not in known else ():
            if token in near:
                near[token].append(device)
    found: dict[str, str] = {}
    for stored_id in sought:
        candidates = [d for token in stored[stored_id] for d in near.get(token, ())]
        if any(stored_id in d.aliases and leads_to(stored[stored_id], d) for d in candidates if stored_id in by_alias):
            continue
        # all shares of a device are alike
        free = (d for d in candidates if d.id not in found and part_number(d.id) == part_number(stored_id))
        moved = next((d for d in free if is_moved(stored[stored_id], d.identity)), None)
        if moved is not None:
            found[moved.id] = stored_id
    return found


def _without_aliases(device: Device, stored: Stored) -> Device:
    """The device without aliases that are stored IDs of other devices."""
    others = [i for i in device.aliases if i in stored and not leads_to(stored[i], device)]
    return structs.replace(device, aliases=tuple(i for i in device.aliases if i not in others)) if others else device


def _other_names(
    listed: ListedDevices, stored: Stored, taken: Iterable[str], given: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """New IDs of the devices whose own IDs are stored for others: an alias, or a generated ID."""
    used = {*listed.devices, *stored, *given}
    for listed_id in sorted(taken):
        device = listed.devices[listed_id]
        new = next((alias for alias in device.aliases if alias not in used), "") or made_id(
            device.id, device.identity, _LONGEST_BASE
        )
        used.add(new)
        yield listed_id, new


def _named(device: Device, new: str) -> Device:
    if new == device.id:
        return device
    return renamed_device(device, new, tuple(alias for alias in device.aliases if alias != new), device.id)
