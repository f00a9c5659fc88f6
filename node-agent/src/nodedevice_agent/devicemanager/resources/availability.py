"""Counts and lists the healthy and the allocatable devices of a resource, from its state. Pure.

A list may have a hundred thousand devices: a query over all of them takes at most one pass, and a count none if possible.
"""

from collections.abc import Iterable, Set
from itertools import filterfalse

from nodedevice_api.names import ALL_DEVICES

from nodedevice_agent.devicemanager.resources.resource import Resource


def is_healthy(resource: Resource, device_id: str) -> bool:
    """Whether a connected plugin lists it as healthy, it is not damped, and its physical device has no other use."""
    device = resource.devices.get(device_id) if resource.is_live else None
    is_out = bool(resource.use.excess) or resource.flap_damping.has(device_id) or device_id in resource.use.held_back
    return device is not None and device.healthy and not is_out


def is_usable(resource: Resource, device_id: str) -> bool:
    is_in_doubt = device_id in resource.listed.unconfirmed
    return is_healthy(resource, device_id) and not is_in_doubt and not resource.use.is_cordoned(device_id)


def unconfirmed(resource: Resource) -> list[str]:
    """Healthy, free devices that are not allocated before their plugin has confirmed them; sorted."""
    if not resource.listed.unconfirmed or _gives_none(resource):
        return []
    out = {*resource.use.holders, *resource.use.reserved, *_not_counted(resource)}
    return sorted(resource.listed.unconfirmed - out)


def doubt(resource: Resource) -> str:
    """Why the first of these devices is not allocated, in words that name it; "" without devices."""
    found = unconfirmed(resource)
    return resource.devices[found[0]].message if found else ""


def _are_all_out(resource: Resource) -> bool:
    return bool(resource.use.excess) or resource.flap_damping.is_of_all


def _gives_none(resource: Resource) -> bool:
    return not resource.is_live or _are_all_out(resource) or ALL_DEVICES in resource.use.cordoned_ids


def _out(resource: Resource) -> set[str]:
    """Devices that are excluded from allocation one by one, for any listed health."""
    return {*_not_counted(resource), *resource.listed.unconfirmed}


def _not_counted(resource: Resource) -> set[str]:
    return {*resource.use.cordoned_ids, *resource.flap_damping.damped, *resource.use.held_back}


def are_usable(resource: Resource, device_ids: Iterable[str]) -> bool:
    """Whether each device is usable; as fast for very many as for a few."""
    ids = frozenset(device_ids)
    if _gives_none(resource):
        return not ids
    listed = resource.listed
    out = (
        listed.unhealthy_ids,
        listed.unconfirmed,
        resource.flap_damping.damped,
        resource.use.held_back,
        resource.use.cordoned_ids,
    )
    return resource.devices.keys() >= ids and all(map(ids.isdisjoint, out))


def healthy_count(resource: Resource) -> int:
    if not resource.is_live or _are_all_out(resource):
        return 0
    return _healthy_count_without(resource, {*resource.flap_damping.damped, *resource.use.held_back})


def free(resource: Resource) -> tuple[str, ...]:
    """Device IDs that are healthy, not cordoned, not held and not reserved; sorted, so equal state gives an equal result."""
    if _gives_none(resource):
        return ()
    out = {*resource.use.holders, *resource.use.reserved, *_out(resource)}
    return tuple(filterfalse(out.__contains__, resource.listed.healthy_ids)) if out else resource.listed.healthy_ids


def allocatable(resource: Resource) -> tuple[str, ...]:
    """Device IDs that are usable or held, and listed as healthy; sorted."""
    if not resource.is_live:
        return ()
    held = resource.use.holders.keys() & resource.devices.keys()
    if ALL_DEVICES in resource.use.cordoned_ids or _are_all_out(resource):
        return tuple([i for i in resource.listed.healthy_ids if i in held])
    out = _out(resource)
    return tuple([i for i in resource.listed.healthy_ids if i in held or i not in out])


def free_count(resource: Resource) -> int:
    if _gives_none(resource):
        return 0
    others = {*resource.use.reserved, *_out(resource)}
    held = resource.use.holders.keys()
    return _healthy_count_without(resource, held | others if others else held)


def _healthy_count_without(resource: Resource, device_ids: Set[str]) -> int:
    """device_ids: without duplicates, listed or not."""
    if not resource.listed.unhealthy_ids and resource.devices.keys() >= device_ids:
        return len(resource.listed.healthy_ids) - len(device_ids)
    listed = resource.devices.keys() & device_ids
    return len(resource.listed.healthy_ids) - len(listed) + len(listed.intersection(resource.listed.unhealthy_ids))
