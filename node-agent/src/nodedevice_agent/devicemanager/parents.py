"""The physical devices of a resource whose devices are parts: how many parts of each there are, and what they are used for."""

from collections.abc import Iterable

from msgspec import Struct
from nodedevice_api.nodedevice import PartCounts

from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.resource import Resource


class ParentView(Struct, frozen=True):
    """One physical device. example: ID of its first part that is not healthy, else of the first. cordoned: all its parts are."""

    id: str
    parts: PartCounts
    example: str
    cordoned: bool
    present: bool


def parent_views(resource: Resource, missing: Iterable[str]) -> list[ParentView]:
    """Sorted by ID. missing: held devices that are not listed; one that was held whole counts as a part of itself."""
    parts: dict[str, list[str]] = {}
    for device_id in (*resource.listed.ids, *missing):
        parts.setdefault(resource.parent_of(device_id), []).append(device_id)
    # they count as available, as devices without parts do
    unconfirmed = frozenset(availability.unconfirmed(resource))
    return [_view(resource, parent, parts[parent], unconfirmed) for parent in sorted(parts)]


def _view(resource: Resource, parent: str, device_ids: list[str], unconfirmed: frozenset[str]) -> ParentView:
    holders = resource.holders
    unhealthy = [i for i in device_ids if not availability.is_healthy(resource, i)]
    counts = PartCounts(
        total=len(device_ids),
        healthy=len(device_ids) - len(unhealthy),
        allocated=sum(i in holders for i in device_ids),
        available=sum(
            i not in holders and (i in unconfirmed or availability.is_usable(resource, i)) for i in device_ids
        ),
    )
    is_cordoned = bool(resource.cordoned_ids) and all(resource.is_cordoned(i) for i in device_ids)
    is_present = any(i in resource.devices for i in device_ids)
    return ParentView(parent, counts, (unhealthy or device_ids)[0], is_cordoned, is_present)
