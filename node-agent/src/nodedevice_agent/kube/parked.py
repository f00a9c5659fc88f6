"""Parks NodeDevices of unused names, whose plugins are gone: a periodic visit replaces the watch.

The NodeDevice of a removed plugin stays for an hour, and a plugin that invents names leaves hundreds. A watch takes 0.2 MiB; a
parked NodeDevice is only a name. Above a limit all unused names are parked: they share pages of memory, and one left would keep
all pages. A late visit does no harm: cordons are read before such a name allocates.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from nodedevice_common.tasks import apart

from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS, EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource

# unused names that keep their watches
MOST_WATCHED: Final = 8
# a plugin in a restart loop is back within this time
GONE_SECONDS: Final = 60.0
# 256 names, the most that a node has, make one request a second
VISIT_SECONDS: Final = 240.0
_BEAT_SECONDS: Final = 1.0


class Parked:
    """The names of parked resources. visit: work() calls it with each name from time to time."""

    def __init__(self, visit: Callable[[str], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._visit = visit
        self._clock = clock
        # the next visit of each name
        self.due: dict[str, float] = {}
        self._visiting: set[str] = set()
        # whether work() is due to them already
        self.is_worked = False

    def add(self, name: str) -> None:
        # many come at once, and are spread
        self.due[name] = self._clock() + random.random() * VISIT_SECONDS

    def remove(self, name: str) -> bool:
        return self.due.pop(name, None) is not None

    async def work(self) -> None:
        """Visit parked names until all are removed."""
        async with asyncio.TaskGroup() as visits:
            while self.due:
                await asyncio.sleep(_BEAT_SECONDS)
                now = self._clock()
                for name in [name for name, due in self.due.items() if due <= now and name not in self._visiting]:
                    self.due[name] = now + VISIT_SECONDS
                    self._visiting.add(name)
                    visits.create_task(self._visited(name))
            self.is_worked = False

    async def _visited(self, name: str) -> None:
        try:
            with apart("parked nodedevice", resource_name=name):
                await self._visit(name)
        finally:
            self._visiting.discard(name)


def to_park(
    names: Iterable[str],
    parked: Collection[str],
    needed: Mapping[str, bool],
    known: Collection[Mapping[str, Resource]],
    now: float,
) -> frozenset[str]:
    """Choose the names to park. parked: names that stay parked until they are needed. needed: names with a place.

    known: the resources of each device manager.
    """
    found = [
        name
        for name in names
        if not needed.get(name, True) and all(_is_gone(of[name], now) for of in known if name in of)
    ]
    return frozenset(found if len(found) > MOST_WATCHED else (name for name in found if name in parked))


def is_served(name: str, known: Iterable[Mapping[str, Resource]]) -> bool:
    """Whether a plugin of that name is connected to one of the device managers."""
    return any(name in of and of[name].presence.state is EndpointState.RUNNING for of in known)


def _is_gone(resource: Resource, now: float) -> bool:
    """Whether the plugin has been gone for a while. A name that was ended on purpose is deleted soon instead."""
    if resource.presence.is_not_configured or resource.may_answer or resource.presence.state is EndpointState.RUNNING:
        return False
    ends_at = resource.presence.grace_ends_at
    return ends_at is None or ends_at - now <= STOP_GRACE_PERIOD_SECONDS - GONE_SECONDS
