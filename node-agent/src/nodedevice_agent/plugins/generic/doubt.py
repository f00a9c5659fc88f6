"""Decides which devices are listed after a scan in which some path could not be read. Pure.

Devices found by the scan count. A missing device may still be there, and an unread one may be another device. Both stay listed
for a minute, unchanged, and are not allocated meanwhile. They lose files and numbers that another device has by now. If another
device has their ID, they are listed under an ID that is made from it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import Reason
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.identity import Sameness, compare, is_lasting, lasting, made_id, same_device
from nodedevice_agent.lib.deviceplugin_server.values import MAX_DEVICE_ID, ContainerAllocation, PluginDevice
from nodedevice_agent.plugins.generic.devices import GenericDevice

# A fault that lasts longer may be of a device that is broken, or gone.
KEPT_SECONDS: Final = 60.0
# of an ID that is made: after it come a hyphen and eight digits
_LONGEST_BASE: Final = MAX_DEVICE_ID - 9
_Devices = Mapping[str, GenericDevice]


class Unconfirmed(Struct, frozen=True):
    """listed: all devices. ids: the listed devices that are not allocated. since: when each device was first in doubt, by ID."""

    listed: _Devices
    ids: Collection[str]
    since: Mapping[str, float]


def confirmed(
    known: _Devices, found: _Devices, since: Mapping[str, float], now: float, *, is_doubtful: bool
) -> Unconfirmed:
    """known: listed until now. found: in this scan. since: of devices that were unconfirmed until now.

    is_doubtful: whether some path could not be read, which may have been a missing device's.
    """
    if not is_doubtful and not any(device.is_unread for device in found.values()):
        return Unconfirmed(found, (), {})
    sure = {i: device for i, device in found.items() if not device.is_unread}
    unsure = {i: device for i, device in found.items() if device.is_unread}
    if is_doubtful:
        displaced = _displaced(known, sure)
        known = {**known, **{device.listed.id: device for _, device in displaced}}
        since = {**since, **{device.listed.id: since[i] for i, device in displaced if i in since}}
    missing = {i: device for i, device in known.items() if is_doubtful and i not in found}
    times = {i: since.get(i, now) for i in (*missing, *unsure)}
    recent = {i for i, began in times.items() if now - began < KEPT_SECONDS}
    others = _Others(device.listed for device in sure.values())
    kept = {
        i: others.without(known[i]) for i in known if i in recent and i not in sure and not others.have(known[i].listed)
    }
    tokens = {token for device in kept.values() for token in device.listed.identity}
    # a device listed under another ID stands for it
    new = {i: d for i, d in unsure.items() if i not in kept and tokens.isdisjoint(d.listed.identity)}
    old = {i: device for i, device in new.items() if i not in recent}
    listed = {i: kept.get(i) or sure.get(i) or new[i] for i in known if i in kept or i in sure or i in new}
    listed |= {i: device for i, device in found.items() if i in sure or i in new}
    listed |= {i: _unhealthy(device) for i, device in old.items()}
    ids = {*kept, *new} - {*old}
    return Unconfirmed(listed, ids, {i: times[i] for i in times if i in kept or i in unsure})


class _Others:
    """The devices that a scan has found for certain."""

    def __init__(self, devices: Iterable[PluginDevice]) -> None:
        listed = [*devices]
        self._identities: dict[str, list[tuple[str, ...]]] = {}
        for device in listed:
            for token in device.identity:
                self._identities.setdefault(token, []).append(device.identity)
        self._tokens = self._identities.keys()
        self._paths = {path for device in listed for path, _ in device.files}

    def have(self, device: PluginDevice) -> bool:
        """Whether this device was found by another name, or as a part of another one."""
        candidates = (found for token in lasting(device.identity) for found in self._identities.get(token, ()))
        return any(compare(device.identity, found) is not Sameness.OTHER for found in candidates)

    def without(self, device: GenericDevice) -> GenericDevice:
        """The device without files and numbers that now belong to another one."""
        listed = device.listed
        identity = tuple(token for token in listed.identity if is_lasting(token) or token not in self._tokens)
        files = tuple(file for file in listed.files if not self._is_others(file))
        if (identity, files) == (listed.identity, listed.files):
            return device
        return replace(
            device, listed=replace(listed, identity=identity, files=files), allocation=_without(device, files)
        )

    def _is_others(self, file: tuple[str, str]) -> bool:
        path, number = file
        return path in self._paths or number in self._tokens


def _displaced(known: _Devices, sure: _Devices) -> list[tuple[str, GenericDevice]]:
    """Each device whose ID is another device's now: that ID, and the device by one that is made for it."""
    return [
        (i, _renamed(device))
        for i, device in known.items()
        if i in sure and same_device(device.listed.identity, sure[i].listed.identity) > Sameness.UNKNOWN
    ]


def _renamed(device: GenericDevice) -> GenericDevice:
    """The ID is the same in each scan."""
    listed = device.listed
    new_id = made_id(listed.id, listed.identity, _LONGEST_BASE)
    part = parent_and_number(new_id)
    parent = (part[0] if part else new_id) if listed.parent else ""
    return replace(device, listed=replace(listed, id=new_id, parent=parent))


def _without(device: GenericDevice, files: Collection[tuple[str, str]]) -> ContainerAllocation:
    paths = {path for path, _ in files}
    gone = {path for path, _ in device.listed.files} - paths
    return replace(
        device.allocation, device_nodes=tuple(n for n in device.allocation.device_nodes if n.host_path not in gone)
    )


def _unhealthy(device: GenericDevice) -> GenericDevice:
    message = f"the kernel's files about it cannot be read for more than {KEPT_SECONDS:.0f} s: see the agent's log"
    listed = replace(device.listed, is_healthy=False, reason=Reason.UNREAD, message=message)
    return replace(device, listed=listed)
