"""The use of a resource's devices: their holders, and why some of them are not allocated.

Cordons are set by the administrator. A device is held back if it is the same as another listed device, or if its physical device
has another use.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from msgspec import Struct
from nodedevice_api.names import ALL_DEVICES
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, NOTHING, ListedDevices

# possible holders instead of UIDs, until the pods of the node are known
PODS_NOT_SYNCED = frozenset({""})


class OtherUse(Struct, frozen=True):
    """Why a listed device is not allocated: it is the same as device_id of resource_name, with that use there; or, without a
    device_id, its physical device has that use.
    """

    resource_name: str
    device_id: str = ""
    use: str = ""


class DeviceUse(Struct, eq=False):
    """holders, reserved: device ID to pod UID, of committed allocations (kept by the AllocationBook), and of one in flight. holds:
    the number of changes of holders. possible_holders: UIDs of pods that may hold unknown devices; nothing is allocated before they
    go.

    held_back: by device ID; see OtherUse. excess: why no device is allocated, as too many need comparing. part_sizes: by physical
    device, the size of the parts that are held, or else listed. cordons: as the administrator named devices or physical devices;
    cordoned_ids: the matching listed devices. are_cordons_synced: False until they were read; nothing is allocated before.
    """

    listed: ListedDevices = NO_DEVICES
    holders: dict[str, str] = {}
    reserved: dict[str, str] = {}
    holds: int = 0
    possible_holders: frozenset[str] = frozenset()
    held_back: Mapping[str, OtherUse] = NOTHING
    excess: str = ""
    part_sizes: Mapping[str, str] = NOTHING
    cordons: frozenset[str] = frozenset()
    cordoned_ids: frozenset[str] = frozenset()
    are_cordons_synced: bool = True
    # physical devices of held devices that left the list, such as destroyed instances
    _past_parents: Mapping[str, str] = NOTHING

    def follow(self, before: ListedDevices) -> None:
        """Update after a change of the list or the cordons. before: the list until now."""
        listed = self.listed
        gone = [device_id for device_id in self.holders if device_id not in listed.devices]
        past = {**self._past_parents, **{i: before.devices[i].parent for i in gone if i in before.devices}}
        self._past_parents = {device_id: past.get(device_id, "") for device_id in gone} if gone else NOTHING
        parts = [i for cordoned in self.cordons for i in listed.by_parent.get(cordoned, ())]
        if self.cordons and listed.has_aliases:
            parts += [i for i, device in listed.devices.items() if not self.cordons.isdisjoint(device.aliases)]
        self.cordoned_ids = self.cordons.union(parts) if parts else self.cordons

    def named(self) -> Collection[str]:
        """Devices whose names are kept without a plugin."""
        return {*self.holders, *self.reserved, *self.cordoned_ids}

    def claimed(self) -> Set[str]:
        """Held and cordoned devices."""
        if ALL_DEVICES in self.cordoned_ids:
            return {*self.holders, *self.listed.devices}
        return {*self.holders, *self.cordoned_ids} if self.cordoned_ids else self.holders.keys()

    def claimed_of(self, device_ids: Iterable[str]) -> Sequence[str]:
        """The listed devices that are held or cordoned."""
        return [i for i in device_ids if i in self.holders or (self.cordons and self.is_cordoned(i))]

    def free_of(self, device_ids: Iterable[str]) -> Sequence[str]:
        """The listed devices that are not held, cordoned or unconfirmed."""
        free = [i for i in device_ids if i not in self.holders and i not in self.listed.unconfirmed]
        return [i for i in free if not self.is_cordoned(i)] if self.cordons else free

    def parent_of(self, device_id: str) -> str:
        """The physical device of a listed or held device, from its list or its ID; the ID itself without any."""
        if (device := self.listed.devices.get(device_id)) is not None:
            return device.parent or device_id
        if past := self._past_parents.get(device_id):
            return past
        part = parent_and_number(device_id)
        return device_id if part is None else part[0]

    def is_cordoned(self, device_id: str) -> bool:
        if device_id in self.cordoned_ids or ALL_DEVICES in self.cordoned_ids:
            return True
        return bool(self.cordons) and device_id not in self.listed.devices and self.parent_of(device_id) in self.cordons

    def unknown_cordons(self) -> frozenset[str]:
        """Cordons that match neither a listed or held device nor its physical device."""
        listed = self.listed
        aliases = {i for device in listed.devices.values() for i in device.aliases} if listed.has_aliases else ()
        known = (listed.devices, listed.by_parent, self.holders, aliases)
        unknown = frozenset(i for i in self.cordons if not any(i in ids for ids in known))
        return unknown.difference(map(self.parent_of, self.holders)) if unknown else unknown
