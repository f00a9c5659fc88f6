"""Limits the lists of a node's plugins, per domain and in total: the number of devices and their memory.

A list that exceeds a limit is refused whole, and the list before it stays. It is accepted once another list shrinks or a plugin
goes. After a plugin has gone, only its claimed devices are kept.
"""

from collections.abc import Mapping

from msgspec import Struct
from nodedevice_api.extended_resources import domain_of

from nodedevice_agent.devicemanager.effects import TakeList
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, TOO_MANY, ListedDevices, Size, no_list
from nodedevice_agent.devicemanager.resources.resource import Resource

# A list of up to so much counts, but is not refused: others that list far more must not stop a plugin. For the most names that a
# node has, half of the bound.
MAX_SMALL_LIST = 256
_SMALL_OCTETS = 128 * 1024
# The room that one domain leaves to others.
MAX_DEVICES_OF_DOMAIN = 28 * 4096
# The most devices with short reasons, or half a million attributes; an agent has 384 MiB in the chart.
MAX_OCTETS = 64 * 1024 * 1024
MAX_OCTETS_OF_DOMAIN = 56 * 1024 * 1024
_REFUSED = (
    "the latest list of this one exceeds that, and is refused until there is room, and the list before it counts: have it list "
    "fewer, coarser devices, or stop other plugins"
)


class ListLimit(Struct, eq=False):
    """The limits on the lists of some resources, by name."""

    _resources: Mapping[str, Resource]
    # the noted size of each resource's lists; and the sums of these, by domain and ("") in total
    _sizes: dict[str, Size] = {}
    _sums: dict[str, Size] = {}
    # whether a list shrank since refused lists were last checked
    has_shrunk: bool = False

    def accepted(self, resource: Resource, endpoint: int, listed: ListedDevices) -> ListedDevices:
        """The list, or a refused placeholder. Every short list is accepted, and one no longer than the one before it."""
        if listed.is_refused:
            # Counted and not read: the exceeded limit is known here, unless the list alone exceeds it.
            is_alone = listed.size.devices > MAX_DEVICES
            why = "" if is_alone else self._problem(resource, endpoint, listed.size)
            return no_list(listed.size, why or listed.id_error)
        if why := self._problem(resource, endpoint, listed.size):
            # a plugin that registers again must not need room for two lists
            resource.connections.forget_older_lists(endpoint)
            why = self._problem(resource, endpoint, listed.size)
        return no_list(listed.size, why) if why else listed

    def most_devices(self, resource_name: str, endpoint: int) -> int:
        """The maximum length of an acceptable list on that connection; a longer list need not be read."""
        resource = self._resources.get(resource_name)
        if resource is None:
            return 0
        of_domain, of_all = self._kept(resource, endpoint, besides_older=True)
        room = min(MAX_DEVICES_OF_DOMAIN - of_domain.devices, MAX_DEVICES - of_all.devices)
        return max(MAX_SMALL_LIST, resource.connections.size_of(endpoint).devices, room)

    def noted(self, resource: Resource) -> None:
        """Update the sizes of a resource after a change of its lists or connections."""
        self._count(resource.name, resource.domain, sum(resource.kept_sizes(), Size()))

    def forgotten(self, resource_name: str) -> None:
        self._count(resource_name, domain_of(resource_name), Size())
        del self._sizes[resource_name]

    def settle(self, marks: Marks) -> None:
        """Accept refused lists that fit now, each once."""
        self.has_shrunk = False
        for name, resource in sorted(self._resources.items()):
            for connection, endpoint, size in resource.connections.refused():
                if not self._problem(resource, endpoint, size):
                    connection.is_awaited = True
                    self.noted(resource)
                    marks.call(TakeList(name, endpoint))

    def _count(self, resource_name: str, domain: str, size: Size) -> None:
        before = self._sizes.get(resource_name, Size())
        self._sizes[resource_name] = size
        self.has_shrunk = self.has_shrunk or size.devices < before.devices or size.octets < before.octets
        for whose in (domain, ""):
            total = self._sums.pop(whose, Size()) + size - before
            if total != Size():
                self._sums[whose] = total

    def _problem(self, resource: Resource, endpoint: int, size: Size) -> str:
        """Why a list of that size exceeds a limit on this connection; "" if it fits."""
        before = resource.connections.size_of(endpoint)
        small = size.devices <= MAX_SMALL_LIST and size.octets <= _SMALL_OCTETS
        if small or (size.devices <= before.devices and size.octets <= before.octets):
            return ""
        if size.devices > MAX_DEVICES:
            return TOO_MANY
        of_domain, of_all = (kept + size for kept in self._kept(resource, endpoint))
        if of_domain.devices > MAX_DEVICES_OF_DOMAIN or of_domain.octets > MAX_OCTETS_OF_DOMAIN:
            whose, devices, octets = resource.domain, MAX_DEVICES_OF_DOMAIN, MAX_OCTETS_OF_DOMAIN
            return (
                f"the device plugins of {whose} may list {devices} devices on a node, in {_mib(octets)} MiB; {_REFUSED}"
            )
        if of_all.devices > MAX_DEVICES or of_all.octets > MAX_OCTETS:
            what = f"the device plugins of a node may list {MAX_DEVICES} devices in all, in {_mib(MAX_OCTETS)} MiB"
            return f"{what}; {_REFUSED}"
        return ""

    def _kept(self, resource: Resource, endpoint: int, *, besides_older: bool = False) -> tuple[Size, Size]:
        """The sizes without the list of this connection: of the domain of its name, and in total."""
        others = sum(resource.kept_sizes(besides=endpoint, besides_older=besides_older), Size())
        less = self._sizes.get(resource.name, Size())
        of_domain, of_all = (self._sums.get(whose, Size()) + others - less for whose in (resource.domain, ""))
        return of_domain, of_all


def _mib(octets: int) -> int:
    return octets // 1024 // 1024
