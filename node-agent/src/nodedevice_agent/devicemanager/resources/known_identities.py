"""What the devices of one resource are, also those that no plugin lists any more while somebody holds or cordons them."""

from collections.abc import Iterable, Mapping
from typing import Final

from nodedevice_agent.devicemanager.resources.devices import NOTHING, Device
from nodedevice_agent.identity import Identity

_NONE: Final[frozenset[str]] = frozenset()


class KnownIdentities:
    """holders: by device ID, kept by its owner."""

    __slots__ = ("_apart", "_held_alone", "_holders", "_past")

    def __init__(self, holders: Mapping[str, str]) -> None:
        self._holders = holders
        # what held and cordoned devices are of which no plugin says so any more
        self._past: Mapping[str, Identity] = NOTHING
        # held devices that were not shared when they were listed before; a pod has one alone until it has ended
        self._held_alone = _NONE
        # ... of these the ones that are shared by now
        self._apart = _NONE

    def __bool__(self) -> bool:
        """Whether anything is known that no plugin says."""
        return bool(self._past)

    @property
    def apart(self) -> frozenset[str]:
        """Devices that are not what a plugin says."""
        return self._apart.union(self._past) if self._past else self._apart

    def of(self, device_id: str, device: Device | None) -> Identity | None:
        """device: as it is listed now."""
        if device is not None and device.identity:
            is_alone = device_id in self._held_alone and device_id in self._holders
            return Identity(device.identity, device.is_shared and not is_alone)
        return self._past.get(device_id)

    def remember(self, identities: Mapping[str, Identity]) -> None:
        """From before a restart."""
        gone = {device_id: identity.when_gone() for device_id, identity in identities.items()}
        self._past = {**gone, **self._past}
        self._held_alone = self._held_alone.union(i for i, identity in gone.items() if not identity.is_shared)

    def released(self) -> None:
        """A device is held no more: whoever gets it next has it as it is listed then."""
        self._held_alone = self._held_alone.intersection(self._holders)

    def listed(self, devices: Mapping[str, Device], before: Mapping[str, Device], claimed: Iterable[str]) -> None:
        """The list is another one. before: the devices until now. claimed: those that are held or cordoned."""
        alone = (i for i in self._holders if i in before and before[i].identity and not before[i].is_shared)
        self._held_alone = self._held_alone.intersection(self._holders).union(alone)
        self._apart = frozenset(i for i in self._held_alone if i in devices and devices[i].is_shared) or _NONE
        past: dict[str, Identity] = {}
        for device_id in claimed:
            device, last = devices.get(device_id), before.get(device_id)
            if device is not None and device.identity:
                continue
            if last is not None and last.identity:
                is_shared = last.is_shared and device_id not in self._held_alone
                past[device_id] = Identity(last.identity, is_shared).when_gone()
            elif device_id in self._past:
                past[device_id] = self._past[device_id]
        self._past = past
