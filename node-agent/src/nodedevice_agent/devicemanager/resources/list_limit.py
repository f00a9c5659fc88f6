"""How much the plugins of a node may list: those of one domain, and all together; devices, and the memory that they take.

A list that exceeds it is refused whole, and the list before it stays. It is taken once there is room: another list is shorter, or a
plugin is gone, of whose devices only those are kept that somebody claims.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodedevice_agent.devicemanager.effects import TakeList
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, TOO_MANY, ListedDevices, Size, no_list
from nodedevice_agent.devicemanager.resources.resource import Resource

# A list of up to so much counts, but is not refused: others that list far more must not stop a plugin. For the most names that a
# node has, half of the bound.
MAX_SMALL_LIST = 256
_SMALL_OCTETS = 128 * 1024
# What one domain leaves to others.
MAX_DEVICES_OF_DOMAIN = 28 * 4096
# The most devices with short reasons, or half a million attributes; an agent has 384 MiB in the chart.
MAX_OCTETS = 64 * 1024 * 1024
MAX_OCTETS_OF_DOMAIN = 56 * 1024 * 1024
_REFUSED = (
    "the latest list of this one exceeds that, and is refused until there is room, and the list before it counts: have it list "
    "fewer, coarser devices, or stop other plugins"
)


class _Bound(msgspec.Struct, frozen=True):
    """size: of all lists that count. what: the beginning of a sentence."""

    size: Size
    what: str

    def room(self, lists: Iterable[Size]) -> Size:
        lists = tuple(lists)
        devices = self.size.devices - sum(each.devices for each in lists)
        return Size(devices, self.size.octets - sum(each.octets for each in lists))


def _bounds(domain: str) -> tuple[_Bound, _Bound]:
    """Of that domain, and of all together."""
    mib = 1024 * 1024
    of_domain = Size(MAX_DEVICES_OF_DOMAIN, MAX_OCTETS_OF_DOMAIN)
    of_all = Size(MAX_DEVICES, MAX_OCTETS)
    return (
        _Bound(
            of_domain,
            f"the device plugins of {domain} may list {of_domain.devices} devices on a node, in {of_domain.octets // mib} MiB",
        ),
        _Bound(
            of_all,
            f"the device plugins of a node may list {of_all.devices} devices in all, in {of_all.octets // mib} MiB",
        ),
    )


class ListLimit:
    """Of some resources, by name."""

    def __init__(self, resources: Mapping[str, Resource]) -> None:
        self._resources = resources
        # of which a connection's list waits for room
        self._waiting: set[str] = set()

    def accepted(self, resource: Resource, endpoint: int, listed: ListedDevices) -> ListedDevices:
        """The list, or one that is refused in its place. Never refuses a short list, nor one that is no longer than the one before
        it on this connection.
        """
        if listed.is_refused:
            # Counted and not read: which bound it exceeds is known here, unless it is one by itself.
            is_alone = listed.size.devices > MAX_DEVICES
            why = "" if is_alone else self._problem(resource, endpoint, listed.size)
            return no_list(listed.size, why or listed.id_error)
        if why := self._problem(resource, endpoint, listed.size):
            # a plugin that registers again must not need room for two lists
            resource.forget_older_lists(endpoint)
            why = self._problem(resource, endpoint, listed.size)
        return no_list(listed.size, why) if why else listed

    def most_devices(self, resource_name: str, endpoint: int) -> int:
        """How many a list of that connection may have to be taken; of more it need not be known which."""
        resource = self._resources.get(resource_name)
        if resource is None:
            return 0
        rooms = [bound.room(sizes) for bound, sizes in self._sums(resource, endpoint, besides_older=True)]
        room = min(room.devices for room in rooms)
        return max(MAX_SMALL_LIST, resource.size_of(endpoint).devices, room)

    def noted(self, resource: Resource) -> None:
        """Its lists or its connections may have changed."""
        (self._waiting.add if resource.refused_lists() else self._waiting.discard)(resource.name)

    def due(self) -> list[TakeList]:
        """Those of the refused lists that have room by now, each once."""
        found: list[TakeList] = []
        for name in sorted(self._waiting & self._resources.keys()):
            resource = self._resources[name]
            for endpoint, size in resource.refused_lists().items():
                if not self._problem(resource, endpoint, size):
                    resource.awaits(endpoint)
                    found.append(TakeList(name, endpoint))
        return found

    def _problem(self, resource: Resource, endpoint: int, size: Size) -> str:
        """Why there is no room for a list of that size on this connection; empty where there is."""
        before = resource.size_of(endpoint)
        small = size.devices <= MAX_SMALL_LIST and size.octets <= _SMALL_OCTETS
        if small or (size.devices <= before.devices and size.octets <= before.octets):
            return ""
        if size.devices > MAX_DEVICES:
            return TOO_MANY
        for bound, sizes in self._sums(resource, endpoint):
            room = bound.room(sizes)
            if size.devices > room.devices or size.octets > room.octets:
                return f"{bound.what}; {_REFUSED}"
        return ""

    def _sums(
        self, resource: Resource, endpoint: int, *, besides_older: bool = False
    ) -> Iterator[tuple[_Bound, list[Size]]]:
        """Each bound, and the lists that count in it beside the one of this connection."""
        domain = _domain(resource.name)
        kept = {other.name: other.kept_sizes() for other in self._resources.values() if other is not resource}
        own = resource.kept_sizes(besides=endpoint, besides_older=besides_older)
        of_domain, of_all = _bounds(domain)
        yield of_domain, [*own, *(size for name, sizes in kept.items() if _domain(name) == domain for size in sizes)]
        yield of_all, [*own, *(size for sizes in kept.values() for size in sizes)]


def _domain(name: str) -> str:
    return name.partition("/")[0]
