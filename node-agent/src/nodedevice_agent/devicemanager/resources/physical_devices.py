"""Which use of a physical device counts, where it is listed in several ways, or held in another way than it is listed.

A physical device is used in one way at a time: whole, in the parts of one resource, all of one size, or in instances, which may be
of several resources. Pods that hold it decide; without any, the use that it has, as long as a plugin lists it so; else the one
listed first. What is listed in other ways is held back until then, and nobody is evicted.
"""

from collections.abc import Collection, Iterator, Mapping

from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource

# A word, the name of the resource (that of instances is empty), and the size of parts.
Use = tuple[str, str, str]
_WHOLE, _PARTS, _INSTANCES = "whole", "parts", "instances"


class PhysicalDevices:
    """Of the resources whose plugins name physical devices; for any others it costs nothing."""

    def __init__(self, resources: Mapping[str, Resource]) -> None:
        self._resources = resources
        # by ID, of those that are listed in some way
        self._uses: dict[str, Use] = {}

    def hold_back(self) -> set[str]:
        """Something was listed or released. Sets what each resource has to hold back; returns the names of those that changed."""
        naming = [r for r in self._resources.values() if r.listed.by_parent]
        if not naming and not self._uses:
            return set()
        for resource in self._resources.values():
            _note_part_sizes(resource)
        listed = _listed(naming)
        held = self._held(listed)
        self._uses = {p: _decided(self._uses.get(p), uses, held.get(p, {})) for p, uses in listed.items()}
        return {resource.name for resource in self._resources.values() if self._hold_back(resource, held)}

    def _hold_back(self, resource: Resource, held: Mapping[str, Mapping[Use, str]]) -> bool:
        """Whether that changed anything."""
        found: dict[str, str] = {}
        for parent, device_ids in resource.listed.by_parent.items():
            for device_id in device_ids:
                use = _use(resource, resource.devices[device_id])
                others = [_text(other, name) for other, name in held.get(parent, {}).items() if other != use]
                if others:
                    found[device_id] = others[0]
                elif self._uses.get(parent, use) != use:
                    found[device_id] = _text(self._uses[parent], self._uses[parent][1])
        is_changed = found != resource.held_back
        resource.held_back = found
        return is_changed

    def _held(self, listed: Mapping[str, object]) -> dict[str, dict[Use, str]]:
        """By physical device and use: the resource by which pods hold it, also where no plugin lists it so any more."""
        found: dict[str, dict[Use, str]] = {}
        for resource in self._resources.values():
            for device_id in resource.holders:
                device = resource.devices.get(device_id)
                parent = resource.parent_of(device_id) if device is None else device.parent
                if parent in listed:
                    use = _held_use(resource, device, parent, device_id)
                    found.setdefault(parent, {})[use] = resource.name
        return found


def _listed(resources: list[Resource]) -> dict[str, list[Use]]:
    """By physical device: the ways in which connected plugins list it."""
    found: dict[str, list[Use]] = {}
    for resource in resources:
        for parent, use in _uses_of(resource) if resource.is_live else ():
            uses = found.setdefault(parent, [])
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


def _text(use: Use, resource_name: str) -> str:
    size = use[2]
    return f"{resource_name} in parts of {size}" if size else resource_name


def _decided(before: Use | None, listed: list[Use], held: Collection[Use]) -> Use:
    for use in listed:
        if use in held:
            return use
    return before if before in listed else listed[0]
