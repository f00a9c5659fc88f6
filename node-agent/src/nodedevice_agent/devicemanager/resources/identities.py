"""The identities of a resource's devices, including held and cordoned devices that no plugin lists any more."""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from msgspec import Struct

from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, NOTHING, Device, ListedDevices
from nodedevice_agent.devicemanager.resources.use import DeviceUse
from nodedevice_agent.identity import Identity

_NONE: Final[frozenset[str]] = frozenset()


class DeviceIdentities(Struct, eq=False):
    """use: of the same devices. said: the list of a connected plugin; empty without one. past: identities of held and cordoned
    devices that no plugin lists with an identity any more.
    """

    use: DeviceUse
    said: ListedDevices = NO_DEVICES
    past: Mapping[str, Identity] = NOTHING
    # whether the list contains damped devices that the plugin omitted
    _is_damped: bool = False
    # held devices that were exclusive in an earlier list; one pod keeps such a device alone until it has ended
    _held_alone: frozenset[str] = _NONE
    # ... of these, the devices that are shared now
    _apart: frozenset[str] = _NONE

    def follow(self, before: ListedDevices, reported: ListedDevices, *, is_live: bool) -> None:
        """Follow a new list. before: the list until now. reported: without damped devices that are left out."""
        listed = self.use.listed
        self.said, self._is_damped = (reported if is_live else NO_DEVICES), listed is not reported
        if before.has_identities or self.past:
            self._keep(listed.devices, before.devices)

    def _keep(self, devices: Mapping[str, Device], before: Mapping[str, Device]) -> None:
        holders = self.use.holders
        alone = (i for i in holders if i in before and before[i].identity and not before[i].is_shared)
        self._held_alone = self._held_alone.intersection(holders).union(alone)
        self._apart = frozenset(i for i in self._held_alone if i in devices and devices[i].is_shared) or _NONE
        past: dict[str, Identity] = {}
        for device_id in self.use.claimed():
            device, last = devices.get(device_id), before.get(device_id)
            if device is not None and device.identity:
                continue
            if last is not None and last.identity:
                is_shared = last.is_shared and device_id not in self._held_alone
                past[device_id] = Identity(last.identity, is_shared).when_gone()
            elif device_id in self.past:
                past[device_id] = self.past[device_id]
        self.past = past

    def remember(self, identities: Mapping[str, Identity]) -> None:
        """Restore identities of held and cordoned devices after a restart."""
        gone = {device_id: identity.when_gone() for device_id, identity in identities.items()}
        self.past = {**gone, **self.past}
        self._held_alone = self._held_alone.union(i for i, identity in gone.items() if not identity.is_shared)

    def released(self) -> None:
        """A device was released: its next holder uses the sharing of the current list."""
        self._held_alone = self._held_alone.intersection(self.use.holders)

    @property
    def are_known(self) -> bool:
        """Whether a built-in plugin has given identities to listed or held devices; other lists are long."""
        return self.use.listed.has_identities or bool(self.past)

    def of(self, device_id: str) -> Identity | None:
        """The identity of a listed or held device; None if no built-in plugin has given one."""
        device = self.use.listed.devices.get(device_id)
        if device is not None and device.identity:
            is_alone = device_id in self._held_alone and device_id in self.use.holders
            return Identity(device.identity, device.is_shared and not is_alone)
        return self.past.get(device_id)

    def claimed(self, *, only_apart: bool = False) -> dict[str, Identity]:
        """Identities of held and cordoned devices. only_apart: without identities that a connected plugin's list confirms."""
        if not self.are_known:
            return {}
        claimed = self.use.claimed()
        found = {device_id: self.of(device_id) for device_id in (self._only_apart(claimed) if only_apart else claimed)}
        return {device_id: identity for device_id, identity in found.items() if identity is not None}

    def stored(self) -> dict[str, tuple[str, ...]]:
        """Tokens of the devices whose IDs are in allocations and cordons, held ones first."""
        if not self.are_known:
            return {}
        use = self.use
        named = dict.fromkeys((*sorted({*use.holders, *use.reserved}), *sorted(use.cordons)))
        found = {device_id: self.of(device_id) for device_id in named}
        return {device_id: identity.tokens for device_id, identity in found.items() if identity is not None}

    def _only_apart(self, claimed: Set[str]) -> Iterable[str]:
        """Claimed devices that differ from the list of a connected plugin; mostly none."""
        apart = self._apart.union(self.past) if self.past else self._apart
        if self.said.devices and not self._is_damped:
            return apart & claimed
        return (i for i in claimed if i in apart or i not in self.said.devices)
