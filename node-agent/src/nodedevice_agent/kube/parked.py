"""NodeDevices without a watch: those of names whose plugins are gone and that nobody needs. Each is visited now and then instead.

The NodeDevice of a plugin that is gone stays for an hour, and one that invents names leaves hundreds. With a watch each keeps a
connection, three tasks, its status and its metrics: 0.2 MiB. Parked it is a name, and what a visit needs is made for the visit. A
node has a few such names after each change of its plugins: they keep their watches, over which a change comes at once. Of more than
a few none does: what was made for all of them side by side shares pages of memory, and the last one would keep them all. What a
visit finds late is what nobody waits for: a cordon is read before such a name gives anything out.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final

from nodedevice_common.tasks import apart

from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS, EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource

# names that have watches although nobody needs them
MOST_WATCHED: Final = 8
# a plugin that restarts again and again is back by then
GONE_SECONDS: Final = 60.0
# 256 names, the most that a node has, make one request a second
VISIT_SECONDS: Final = 240.0
_BEAT_SECONDS: Final = 1.0


class Parked:
    """The names of their resources. visit: called with each of them, now and then, by work()."""

    def __init__(self, visit: Callable[[str], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._visit = visit
        self._clock = clock
        # when each is visited next
        self.due: dict[str, float] = {}
        self._visiting: set[str] = set()
        # whether work() is due to them already
        self.is_worked = False

    def add(self, name: str) -> None:
        # many come at once, and are spread
        self.due[name] = self._clock() + random.random() * VISIT_SECONDS

    def remove(self, name: str) -> bool:
        """Whether it was among them."""
        return self.due.pop(name, None) is not None

    async def work(self) -> None:
        """Visit them until there is none."""
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
    """Which of these names. parked: those that are, and stay so until somebody needs them. needed: those that have a place.

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
    """Whether it has been for a while. What was ended on purpose is about to be deleted, and its place is waited for."""
    if resource.presence.is_not_configured or resource.may_answer or resource.presence.state is EndpointState.RUNNING:
        return False
    ends_at = resource.presence.grace_ends_at
    return ends_at is None or ends_at - now <= STOP_GRACE_PERIOD_SECONDS - GONE_SECONDS
