"""Which use of a physical device counts, where it is listed in several ways, or held in another way than it is listed.

A physical device is used in one way at a time: whole, in the parts of one resource, all of one size, or in instances, which may be
of several resources. Pods that hold it decide; without any, the use that it has, as long as a plugin lists it so; else the one
listed first. What is listed in other ways is held back until then, and nobody is evicted.
The IDs of physical devices count within a scope: the domain of the resource's name, so that no plugin uses up another vendor's
devices by naming them, or what a built-in plugin's IDs stand for.
A device of a built-in plugin is besides what its identity says, under any ID of any resource: see claims.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.claims import Claim, winners
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.identity import Identity
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.resource import OtherUse, Resource

# A word, the name of the resource (that of instances is empty), and the size of parts.
Use = tuple[str, str, str]
_WHOLE, _PARTS, _INSTANCES = "whole", "parts", "instances"
# the scope, and the ID of a physical device in it
Parent = tuple[str, str]
# of device files in running containers: the resource's name, one of the devices, the numbers, and whether these may be shared
GivenNumbers = Iterable[tuple[str, str, tuple[str, ...], bool]]


class PhysicalDevices:
    """Of the resources whose plugins name physical devices, or say what their devices are; for any others it costs nothing."""

    def __init__(self, resources: Mapping[str, Resource], preference: Preference) -> None:
        self._resources = resources
        self._preference = preference
        # of those that are listed in some way
        self._uses: dict[Parent, Use] = {}
        self._had_identities = False

    def hold_back(self, given: GivenNumbers = ()) -> set[str]:
        """Something was listed or released. Sets what each resource has to hold back; returns the names of those that changed.

        given: the device files that running containers have.
        """
        naming = [r for r in self._resources.values() if r.listed.by_parent]
        has_identities = any(r.listed.has_identities for r in self._resources.values())
        if not naming and not self._uses and not has_identities and not self._had_identities:
            return set()
        self._had_identities = has_identities
        found = self._in_other_use(naming)
        for key, winner in winners(self._claims(given), self._offers()).items() if has_identities else ():
            found.setdefault(key[0], {}).setdefault(key[1], self._same_device(winner))
        return {r.name for r in self._resources.values() if _set_held_back(r, found.get(r.name, {}))}

    # -- uses of physical devices -----------------------------------------------------------------------------------------

    def _in_other_use(self, naming: list[Resource]) -> dict[str, dict[str, OtherUse]]:
        """By resource and device ID."""
        for resource in self._resources.values():
            _note_part_sizes(resource)
        listed = _listed(naming)
        held = self._held(listed)
        self._uses = {p: _decided(self._uses.get(p), uses, held.get(p, {})) for p, uses in listed.items()}
        return {resource.name: self._held_back_in(resource, held) for resource in naming}

    def _held_back_in(self, resource: Resource, held: Mapping[Parent, Mapping[Use, str]]) -> dict[str, OtherUse]:
        found: dict[str, OtherUse] = {}
        for parent, device_ids in resource.listed.by_parent.items():
            key = _scope(resource), parent
            for device_id in device_ids:
                use = _use(resource, resource.devices[device_id])
                others = [_other(other, name) for other, name in held.get(key, {}).items() if other != use]
                if others:
                    found[device_id] = others[0]
                elif self._uses.get(key, use) != use:
                    found[device_id] = _other(self._uses[key], self._uses[key][1])
        return found

    def _held(self, listed: Mapping[Parent, object]) -> dict[Parent, dict[Use, str]]:
        """By physical device and use: the resource by which pods hold it, also where no plugin lists it so any more."""
        found: dict[Parent, dict[Use, str]] = {}
        by_id: dict[str, list[Parent]] = {}
        for key in listed:
            by_id.setdefault(key[1], []).append(key)
        for resource in self._resources.values():
            for device_id in resource.holders:
                device = resource.devices.get(device_id)
                parent = resource.parent_of(device_id) if device is None else device.parent
                for key in by_id.get(parent, ()):
                    # of a plugin that has not connected since a restart it may be any
                    if resource.scope in (None, key[0]):
                        use = _held_use(resource, device, parent, device_id)
                        found.setdefault(key, {})[use] = resource.name
        return found

    # -- devices that are one ---------------------------------------------------------------------------------------------

    def _claims(self, given: GivenNumbers) -> Iterator[Claim]:
        for resource in self._resources.values():
            for device_id, identity in resource.claimed_identities().items():
                is_listed = resource.reported(device_id) is not None
                yield Claim((resource.name, device_id), identity, _parent(resource, device_id), is_listed)
        for resource_name, device_id, numbers, is_shared in given:
            yield Claim((resource_name, device_id), Identity(numbers, is_shared))

    def _same_device(self, winner: Claim) -> OtherUse:
        resource_name, device_id = winner.key
        resource = self._resources[resource_name]
        if device_id in resource.holders:
            return OtherUse(resource_name, device_id, "allocated")
        return OtherUse(resource_name, device_id, "cordoned" if resource.is_cordoned(device_id) else "offered")

    def _offers(self) -> list[Claim]:
        """The free ones, in the order in which they are preferred."""
        naming = [resource for resource in self._resources.values() if resource.listed.has_identities]
        return [
            Claim((resource.name, device.id), Identity(device.identity, device.is_shared), _parent(resource, device.id))
            for resource in sorted(naming, key=lambda resource: self._preference.key(resource.name))
            for device in resource.offered()
            if device.identity
        ]


def _set_held_back(resource: Resource, found: Mapping[str, OtherUse]) -> bool:
    """Whether that changed anything."""
    is_changed = found != resource.held_back
    resource.held_back = found
    return is_changed


def _scope(resource: Resource) -> str:
    return resource.scope or ""


def _parent(resource: Resource, device_id: str) -> Parent | None:
    device = resource.devices.get(device_id)
    parent = device.parent if device is not None else resource.parent_of(device_id)
    return (_scope(resource), parent) if parent and resource.scope is not None else None


def _listed(resources: list[Resource]) -> dict[Parent, list[Use]]:
    """By physical device: the ways in which connected plugins list it."""
    found: dict[Parent, list[Use]] = {}
    for resource in resources:
        for parent, use in _uses_of(resource) if resource.is_live else ():
            uses = found.setdefault((_scope(resource), parent), [])
            if use not in uses:
                uses.append(use)
    return found


def _uses_of(resource: Resource) -> Iterator[tuple[str, Use]]:
    for parent, device_ids in resource.listed.by_parent.items():
        # parts of one device are all alike
        for device_id in device_ids[:1] if resource.listed.part_rules is not None else device_ids:
            yield parent, _use(resource, resource.devices[device_id])


def _use(resource: Resource, device: Device) -> Use:
    if resource.listed.part_rules is not None:
        return _PARTS, resource.name, _listed_size(resource, device.parent)
    return (_WHOLE, resource.name, "") if device.id == device.parent else (_INSTANCES, "", "")


def _held_use(resource: Resource, device: Device | None, parent: str, device_id: str) -> Use:
    """device: None where it is not listed any more."""
    if device is not None and resource.listed.part_rules is None:
        return _use(resource, device)
    if parent == device_id:
        return _WHOLE, resource.name, ""
    part = parent_and_number(device_id)
    if part is None or part[0] != parent:
        return _INSTANCES, "", ""
    return _PARTS, resource.name, resource.part_sizes.get(parent, _listed_size(resource, parent))


def _listed_size(resource: Resource, parent: str) -> str:
    found = resource.listed.parents.get(parent)
    return found.part_size if found is not None else ""


def _note_part_sizes(resource: Resource) -> None:
    """The size of held parts stays what it was when they were allocated; a list may have another one by now."""
    if not resource.part_sizes and not resource.listed.parents:
        return
    held = {resource.parent_of(device_id) for device_id in resource.holders}
    sizes = {parent: _listed_size(resource, parent) for parent in resource.listed.by_parent}
    sizes |= {parent: size for parent, size in resource.part_sizes.items() if parent in held}
    resource.part_sizes = {parent: size for parent, size in sizes.items() if size}


def _other(use: Use, resource_name: str) -> OtherUse:
    """resource_name: empty for instances of any resource."""
    size = use[2]
    return OtherUse(resource_name, use=f"{resource_name} in parts of {size}" if size else resource_name or "instances")


def _decided(before: Use | None, listed: list[Use], held: Collection[Use]) -> Use:
    for use in listed:
        if use in held:
            return use
    return before if before in listed else listed[0]
