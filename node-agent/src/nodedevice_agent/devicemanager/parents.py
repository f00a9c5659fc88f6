"""The physical devices of a resource whose devices are parts: the number of their parts, and the use of these."""

from collections.abc import Iterable, Set

from msgspec import Struct
from nodedevice_api.nodedevice import PartCounts

from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.resource import Resource


class ParentView(Struct, frozen=True):
    """One physical device. example: ID of its first unhealthy part, else of the first. cordoned: all its parts are."""

    id: str
    parts: PartCounts
    example: str
    cordoned: bool
    present: bool


def parent_views(resource: Resource, missing: Iterable[str]) -> list[ParentView]:
    """Sorted by ID. missing: held devices that are not listed; one that was held whole counts as a part of itself."""
    parts = {parent: [*ids] for parent, ids in resource.listed.by_parent.items()}
    for device_id in missing:
        parts.setdefault(resource.use.parent_of(device_id), []).append(device_id)
    healthy, available = _healthy(resource), _available(resource)
    return [_view(resource, parent, parts[parent], healthy, available) for parent in sorted(parts)]


def _healthy(resource: Resource) -> Set[str]:
    if not resource.is_live or resource.use.excess or resource.flap_damping.is_of_all:
        return frozenset()
    return {*resource.listed.healthy_ids}.difference(resource.flap_damping.damped, resource.use.held_back)


def _available(resource: Resource) -> Set[str]:
    """IDs of available devices. Unconfirmed devices and those reserved by an allocation in progress count, as without parents."""
    reserved = (
        i for i in resource.use.reserved if i not in resource.use.holders and availability.is_usable(resource, i)
    )
    return {*availability.free(resource), *availability.unconfirmed(resource), *reserved}


def _view(resource: Resource, parent: str, device_ids: list[str], healthy: Set[str], available: Set[str]) -> ParentView:
    unhealthy = [i for i in device_ids if i not in healthy]
    counts = PartCounts(
        total=len(device_ids),
        healthy=len(device_ids) - len(unhealthy),
        allocated=sum(map(resource.use.holders.__contains__, device_ids)),
        available=sum(map(available.__contains__, device_ids)),
    )
    is_cordoned = bool(resource.use.cordoned_ids) and all(resource.use.is_cordoned(i) for i in device_ids)
    is_present = any(i in resource.devices for i in device_ids)
    return ParentView(parent, counts, (unhealthy or device_ids)[0], is_cordoned, is_present)
