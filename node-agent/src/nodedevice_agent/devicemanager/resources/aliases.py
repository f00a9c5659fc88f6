"""Maps devices to their known IDs: an ID is stable while it is held, or else while it is cordoned. Pure.

A device may have had another ID before: by another link, by its port, by a serial number that turned out to be shared. An ID that
was stored for another device is not one of its names: see stored_names.
"""

from collections.abc import Collection, Container

from nodedevice_agent.devicemanager.resources.devices import NOTHING, Device, ListedDevices
from nodedevice_agent.devicemanager.resources.stored_names import Stored, renamed_device, replaced, with_stored_ids


def as_known(
    listed: ListedDevices, held: Container[str], cordoned: Collection[str] = (), stored: Stored = NOTHING
) -> ListedDevices:
    """Rename each device to the first of its other IDs that is known, unless its own ID is known.

    held: IDs that precede the cordoned ones, which count under each of a device's IDs. stored: identities of both.
    """
    own_ids = listed.devices.keys()
    listed = with_stored_ids(listed, stored)
    if not listed.has_aliases:
        return listed
    # parts of one device share the ID of that device
    groups: dict[str, list[Device]] = {}
    for device in listed.devices.values():
        groups.setdefault(device.parent or device.id, []).append(device)
    # for devices that do not use their own ID: the number of the alias, from 1 on
    chosen: dict[str, int] = {}
    # an ID that now belongs to another device is not an alias
    taken = {*listed.devices}
    for group in groups.values():
        forms = _forms(group, held)
        known = held if forms else cordoned
        number = _known_alias(group, known, taken) if forms or cordoned else 0
        numbers = {device.id: number for device in group} if number else {}
        if forms and forms != [number]:
            # if pods hold parts of it by several IDs, each part keeps its own
            numbers |= {d.id: _known_alias([d], held, taken) for d in group if _forms([d], held)}
        chosen |= numbers
        taken.update(device.aliases[numbers[device.id] - 1] for device in group if numbers.get(device.id))
    if not any(chosen.values()):
        return listed
    return replaced(listed, ((d, _renamed(d, chosen.get(d.id, 0), own_ids)) for d in listed.devices.values()))


def _forms(group: list[Device], held: Container[str]) -> list[int]:
    """The forms of ID that pods hold of these devices: 0 is the own ID, the others are aliases."""
    forms = (form for device in group for form in enumerate((device.id, *device.aliases)))
    return sorted({number for number, device_id in forms if device_id in held})


def _known_alias(group: list[Device], known: Container[str], taken: Container[str]) -> int:
    """The number of the alias that these devices use, from 1; 0: their own IDs. taken: IDs of other devices."""
    if any(device.id in known for device in group):
        return 0
    for number in range(1, min(len(device.aliases) for device in group) + 1):
        names = [device.aliases[number - 1] for device in group]
        if any(name in known for name in names) and not any(name in taken for name in names):
            return number
    return 0


def _renamed(device: Device, number: int, own_ids: Container[str]) -> Device:
    if number == 0:
        return device
    new = device.aliases[number - 1]
    others = (device.id, *device.aliases[: number - 1], *device.aliases[number:])
    # the plugin would also read another device's own ID as that device
    listed_as = device.listed_as or (device.id if new in own_ids else "")
    return renamed_device(device, new, others, listed_as)
