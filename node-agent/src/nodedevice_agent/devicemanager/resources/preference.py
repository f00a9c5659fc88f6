"""Orders the resources of built-in plugins that list the same device.

The order is by the configurations' priorities, then by names: the choice is the same after every restart. At a start the plugins
list one after the other. Their resources allocate nothing until all have listed, for a moment: another resource may be preferred,
or a pod may hold the device under a kernel name that has passed to another device.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.resource import Resource

# A plugin that has not listed by then has failed, and is restarted separately.
LONGEST_SECONDS = 10.0


class Preference(Struct, eq=False):
    """_resources: by name. awaited: resources whose plugins will list within moments."""

    _resources: Mapping[str, Resource]
    _deadlines: Deadlines
    _ranks: Mapping[str, int] = {}
    awaited: frozenset[str] = frozenset()
    _deadline: float | None = None

    def key(self, resource_name: str) -> tuple[int, str]:
        """Sorts the preferred resource first. One without a configuration comes before all that have one."""
        return self._ranks.get(resource_name, 0), resource_name

    def ranked(self, ranks: Mapping[str, int], awaited: Collection[str], now: float) -> bool:
        """ranks: by resource name, the lower number is preferred. awaited: resources that will list within moments. Returns whether
        either changed.
        """
        live = {name for name, resource in self._resources.items() if resource.is_live}
        awaited = frozenset(awaited) - live
        if ranks == self._ranks and awaited <= self.awaited:
            return False
        self._ranks = dict(ranks)
        self._wait_for(awaited, now + LONGEST_SECONDS)
        return True

    def listed(self, resource_name: str) -> list[str]:
        """A plugin has listed. Returns the resources that need not wait any longer."""
        return self._wait_for(self.awaited - {resource_name}, self._deadline)

    def due(self, now: float) -> list[str]:
        """Time has passed. Returns the resources that need not wait any longer."""
        return self._wait_for(frozenset(), None) if self._deadline is not None and self._deadline <= now else []

    def added(self, resource: Resource) -> None:
        resource.presence.awaits_others = resource.presence.is_built_in and bool(self.awaited - {resource.name})

    def _wait_for(self, awaited: frozenset[str], deadline: float | None) -> list[str]:
        self.awaited = awaited
        self._deadline = deadline if awaited else None
        self._deadlines.set("preference", "", self._deadline)
        waiting = [resource for resource in self._resources.values() if resource.presence.awaits_others]
        for resource in self._resources.values():
            self.added(resource)
        return [resource.name for resource in waiting if not resource.presence.awaits_others]
