"""Decides which use of a physical device counts if it is listed in several ways, or held in another way than listed.

A physical device has one use at a time: whole, in the parts of one resource, all of one size, or in instances, which may be of
several resources. The pods that hold it decide. Without a holder, it keeps its current use as long as a plugin lists it so;
otherwise the use listed first wins. Devices of other uses are held back until then, and no pod is evicted.

The IDs of physical devices count within a scope: the domain of the resource's name, or the ID space of a built-in plugin. So no
plugin can use up another vendor's devices by naming them. Identities of built-in plugins' devices: see same_devices.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.same_devices import GivenNumbers, SameDevices
from nodedevice_agent.devicemanager.resources.use import OtherUse

# A word, the name of the resource (empty for instances), and the size of parts.
Use = tuple[str, str, str]
_WHOLE, _PARTS, _INSTANCES = "whole", "parts", "instances"
# Devices of one scope that name physical devices, which are compared with each other at each change. A node has some hundred.
MOST_LINKED = 16384
_TOO_MANY_LINKED = (
    "the plugins of {0} name the physical devices of more than {1} devices, so none of this resource is allocated: "
    "have them list fewer, coarser devices"
)


class _Seen(Struct):
    """lists: kept, so that no other list reuses the id() of one, which is in `state`."""

    state: Sequence[tuple[object, ...]]
    lists: list[ListedDevices]
    found: dict[str, dict[str, OtherUse]]
    excess: dict[str, str]


class PhysicalDevices(Struct, eq=False):
    """For resources whose plugins name physical devices or give identities; other resources cost nothing."""

    _resources: Mapping[str, Resource]
    _same: SameDevices
    # by scope, for listed physical devices
    _uses: dict[str, dict[str, Use]] = {}
    # by scope: the inputs of the last decision, and its results by resource and device ID
    _seen: dict[str, _Seen] = {}
    # resources with devices that are held back
    found: frozenset[str] = frozenset()

    def hold_back(self, given: GivenNumbers = ()) -> set[str]:
        """Update the devices that each resource holds back. Returns the changed resources. given: files of running containers."""
        naming = [r for r in self._resources.values() if r.listed.by_parent or r.listed.has_identities]
        if not naming and not self._uses and not self.found and self._same.is_idle:
            return set()
        scopes = {_scope(resource) for resource in naming if resource.listed.by_parent} | self._uses.keys()
        seen = [self._look(scope) for scope in scopes]
        excess = {name: why for each in seen for name, why in each.excess.items()}
        found, too_many = self._same.held_back(given, excess)
        excess = {**too_many, **excess}
        for each in seen:
            for name, held_back in each.found.items():
                found[name] = {**found.get(name, {}), **held_back}
        before, self.found = self.found, frozenset((*found, *excess))
        named = (self._resources[name] for name in self.found | before if name in self._resources)
        return {r.name for r in named if _set(r, found.get(r.name, {}), excess.get(r.name, ""))}

    def _look(self, scope: str) -> _Seen:
        """The devices held back in that scope; decided again if one of its inputs has changed."""
        resources = [r for r in self._resources.values() if _scope(r) == scope or r.presence.scope is None]
        state = [(r.name, id(r.listed), r.is_live, r.use.holds, r.presence.scope) for r in resources]
        seen = self._seen.get(scope)
        if seen is None or seen.state != state:
            seen = self._seen[scope] = _Seen(state, [r.listed for r in resources], *self._decide(scope, resources))
        if not self._uses[scope]:
            del self._uses[scope], self._seen[scope]
        return seen

    def _decide(self, scope: str, resources: list[Resource]) -> tuple[dict[str, dict[str, OtherUse]], dict[str, str]]:
        """By resource: the devices held back, by ID; and why none of its devices is allocated."""
        excess: dict[str, str] = {}
        naming, linked = [], 0
        for resource in sorted(resources, key=lambda resource: resource.name):
            if resource.listed.by_parent and _scope(resource) == scope:
                linked += len(resource.listed.ids)
                if linked > MOST_LINKED:
                    excess[resource.name] = _TOO_MANY_LINKED.format(scope.rpartition(" ")[2] or "a domain", MOST_LINKED)
                    continue
                naming.append(resource)
            _note_part_sizes(resource)
        listed = _listed(naming)
        held = _held([r for r in resources if r.name not in excess], listed)
        before = self._uses.get(scope, {})
        uses = self._uses[scope] = {p: _decided(before.get(p), uses, held.get(p, ())) for p, uses in listed.items()}
        return {resource.name: _held_back_in(resource, listed, held, uses) for resource in naming}, excess


def _set(resource: Resource, held_back: Mapping[str, OtherUse], excess: str) -> bool:
    """Whether the update changed anything."""
    before = resource.use.held_back, resource.use.excess
    resource.use.held_back, resource.use.excess = held_back, excess
    return before != (held_back, excess)


def _held_back_in(
    resource: Resource, listed: Mapping[str, list[Use]], held: Mapping[str, Mapping[Use, str]], uses: Mapping[str, Use]
) -> dict[str, OtherUse]:
    found: dict[str, OtherUse] = {}
    for parent, device_ids in resource.listed.by_parent.items():
        here = held.get(parent, {})
        if not here and len(listed.get(parent, ())) <= 1:
            # the only use
            continue
        for use, ids in _by_use(resource, parent, device_ids):
            others = [_other(other, name) for other, name in here.items() if other != use]
            if others:
                found.update(dict.fromkeys(ids, others[0]))
            elif uses[parent] != use:
                found.update(dict.fromkeys(ids, _other(uses[parent], uses[parent][1])))
    return found


def _by_use(resource: Resource, parent: str, device_ids: Sequence[str]) -> list[tuple[Use, Sequence[str]]]:
    """The ways in which a resource lists a physical device, and the IDs of each."""
    first = resource.devices[device_ids[0]]
    # parts of one device are alike
    if resource.listed.part_rules is not None or len(device_ids) == 1:
        return [(_use(resource, first), device_ids)]
    if parent not in resource.devices or resource.devices[parent].parent != parent:
        return [(_use(resource, first), device_ids)]
    whole, instances = _use(resource, resource.devices[parent]), [i for i in device_ids if i != parent]
    found: list[tuple[Use, Sequence[str]]] = [(_use(resource, resource.devices[instances[0]]), instances)]
    return [(whole, [parent]), *found] if first.id == parent else [*found, (whole, [parent])]


def _held(resources: Iterable[Resource], listed: Mapping[str, object]) -> dict[str, dict[Use, str]]:
    """By physical device and use: the resource under which pods hold it. resources: of one scope, or with an unknown one."""
    found: dict[str, dict[Use, str]] = {}
    for resource in resources:
        for device_id in resource.use.holders:
            device = resource.devices.get(device_id)
            parent = resource.use.parent_of(device_id) if device is None else device.parent
            if parent in listed:
                use = _held_use(resource, device, parent, device_id)
                found.setdefault(parent, {})[use] = resource.name
    return found


def _scope(resource: Resource) -> str:
    return resource.presence.scope or ""


def _listed(resources: list[Resource]) -> dict[str, list[Use]]:
    """By physical device: the ways in which connected plugins of one scope list it."""
    found: dict[str, list[Use]] = {}
    for resource in resources:
        for parent, device_ids in resource.listed.by_parent.items() if resource.is_live else ():
            uses = found.setdefault(parent, [])
            uses += [use for use, _ in _by_use(resource, parent, device_ids) if use not in uses]
    return found


def _use(resource: Resource, device: Device) -> Use:
    if resource.listed.part_rules is not None:
        return _PARTS, resource.name, _listed_size(resource, device.parent)
    return (_WHOLE, resource.name, "") if device.id == device.parent else (_INSTANCES, "", "")


def _held_use(resource: Resource, device: Device | None, parent: str, device_id: str) -> Use:
    """device: None if it has left the list."""
    if device is not None and resource.listed.part_rules is None:
        return _use(resource, device)
    if parent == device_id:
        return _WHOLE, resource.name, ""
    part = parent_and_number(device_id)
    if part is None or part[0] != parent:
        return _INSTANCES, "", ""
    return _PARTS, resource.name, resource.use.part_sizes.get(parent, _listed_size(resource, parent))


def _listed_size(resource: Resource, parent: str) -> str:
    found = resource.listed.parents.get(parent)
    return found.part_size if found is not None else ""


def _note_part_sizes(resource: Resource) -> None:
    """Held parts keep the size from their allocation; the current list may have another one."""
    if not resource.use.part_sizes and not resource.listed.parents:
        return
    held = {resource.use.parent_of(device_id) for device_id in resource.use.holders}
    sizes = {parent: _listed_size(resource, parent) for parent in resource.listed.by_parent}
    sizes |= {parent: size for parent, size in resource.use.part_sizes.items() if parent in held}
    resource.use.part_sizes = {parent: size for parent, size in sizes.items() if size}


def _other(use: Use, resource_name: str) -> OtherUse:
    """resource_name: empty for instances of any resource."""
    size = use[2]
    return OtherUse(resource_name, use=f"{resource_name} in parts of {size}" if size else resource_name or "instances")


def _decided(before: Use | None, listed: list[Use], held: Collection[Use]) -> Use:
    for use in listed:
        if use in held:
            return use
    return before if before in listed else listed[0]
