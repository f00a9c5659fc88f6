"""Limits a node to 256 resource names from all plugins, as each costs the API server an object and a watch.

A name keeps its place from its first registration until its NodeDevice is deleted. If all places are taken, a domain may get a
place from the domain with most names, if it has fewer: that of the newest unneeded name. So a plugin that invents names takes
places from itself, and one that also invents domains takes at most one a minute. No exchange happens between two domains whose
counts differ by one: each could take the place back.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from nodedevice_api.extended_resources import domain_of
from nodedevice_common.fair_places import EXCHANGE_SECONDS, spare

from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.registration import RegistrationRejected
from nodedevice_agent.devicemanager.resources.resource import Resource

MAX_NAMES: Final = 256
# domains in a message
_MOST_SHOWN: Final = 5
# names that have lost their place
_MOST_REMEMBERED: Final = 64
_REMEDY: Final = "stop device plugins that it does not need, and delete the NodeDevices of plugins that are gone"

# gives up its own names among these, for the name that gets their place
Displace = Callable[[Collection[str], str], None]


class Places:
    """others: the names that other services of the agent serve, and whether each is needed; displace_others: removes some of them,
    for the name that gets their place.
    """

    def __init__(self, resources: Mapping[str, Resource], pods: Mapping[str, Pod]) -> None:
        self._resources, self._pods = resources, pods
        self.others: Callable[[], Mapping[str, bool]] = dict
        self.displace_others: Displace = lambda names, by: None
        # until then any name may be needed
        self.are_pods_known = False
        self._next_exchange = 0.0
        # names that have lost their place: the new owner of it, the latest last
        self._lost: dict[str, str] = {}

    def own(self) -> dict[str, bool]:
        """By name, the newest last: whether it is needed, because it is held, cordoned or requested by a pod."""
        asked = {request.resource_name for pod in self._pods.values() for request in pod.device_requests}
        return {
            name: not self.are_pods_known or name in asked or _is_needed(resource)
            for name, resource in self._resources.items()
        }

    def taken(self) -> dict[str, bool]:
        """The same, including names of the other services."""
        own, others = self.own(), self.others()
        shown = {name: is_needed for name, is_needed in others.items() if name not in own}
        return {**shown, **{name: is_needed or others.get(name, False) for name, is_needed in own.items()}}

    def placed(self, names: Iterable[str]) -> set[str]:
        """The given names that have a place here or get a free one, without names that have lost it."""
        taken, found = {*self.taken()}, set()
        for name in names:
            if name in taken or len(taken) < MAX_NAMES:
                taken.add(name)
                found.add(name)
        return {name for name in found if not self._has_lost(name)}

    def find(self, name: str, now: float) -> str:
        """Find room for that name: the name that loses its place to it, "" for none. Raises RegistrationRejected."""
        taken = self.taken()
        if self._has_lost(name):
            # its NodeDevice is about to be deleted, and counts until then
            raise self._full(name, taken)
        if name in taken or len(taken) < MAX_NAMES:
            return ""
        # one more is about to go, or dates from before the limit
        may_exchange = len(taken) == MAX_NAMES and now >= self._next_exchange
        found = spare(name, taken) if may_exchange else ""
        if not found:
            raise self._full(name, taken)
        return found

    def exchanged(self, loser: str, name: str, now: float) -> None:
        """Move the place of the first name to the other."""
        self._next_exchange = now + EXCHANGE_SECONDS
        self._lost.pop(name, None)
        self._lost[loser] = name
        if len(self._lost) > _MOST_REMEMBERED:
            del self._lost[next(iter(self._lost))]

    def beyond(self) -> list[str]:
        """The names to remove if an earlier release accepted too many: the newest unneeded ones of the domains with most."""
        taken = {name: is_needed for name, is_needed in self.taken().items() if not self._has_lost(name)}
        counts = Counter(map(domain_of, taken))
        unneeded: dict[str, list[str]] = {}
        for name in [name for name, is_needed in taken.items() if not is_needed]:
            unneeded.setdefault(domain_of(name), []).append(name)
        found: list[str] = []
        while unneeded and len(taken) - len(found) > MAX_NAMES:
            domain = max(unneeded, key=lambda domain: counts[domain])
            found.append(unneeded[domain].pop())
            counts[domain] -= 1
            if not unneeded[domain]:
                del unneeded[domain]
        return found

    def _has_lost(self, name: str) -> bool:
        return name in self._resources and self._resources[name].presence.lost_to is not None

    def _full(self, name: str, taken: Collection[str]) -> RegistrationRejected:
        by = f"; {self._lost[name]} has its place" if name in self._lost else ""
        what = f"this node has {len(taken)} resource names, which is the limit: {_summed(taken)}"
        of_all = f"more resource names are refused: {what}; {_REMEDY}"
        return RegistrationRejected("Names", f"{name}: {what}{by}; {_REMEDY}", of_all)


def share(all_places: Sequence[Places], displace: Sequence[Displace]) -> None:
    """Let each of these count the names of all others. displace: removes names of the others, for the first one's."""
    for places in all_places:
        others = [each for each in all_places if each is not places]
        places.others = partial(_in_all, others)

    def displace_others(names: Collection[str], by: str) -> None:
        for each in displace:
            each(names, by)

    all_places[0].displace_others = displace_others


def _in_all(all_places: Iterable[Places]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for places in all_places:
        for name, is_needed in places.own().items():
            found[name] = is_needed or found.get(name, False)
    return found


def _is_needed(resource: Resource) -> bool:
    return bool(resource.use.holders or resource.use.reserved or resource.use.cordons or resource.use.possible_holders)


def _summed(names: Collection[str]) -> str:
    """The number of names per domain, the largest first."""
    counts = sorted(Counter(map(domain_of, names)).items(), key=lambda found: (-found[1], found[0]))
    named = ", ".join(f"{count} of {domain}" for domain, count in counts[:_MOST_SHOWN])
    others = [count for _, count in counts[_MOST_SHOWN:]]
    return f"{named}, {sum(others)} of {len(others)} more domains" if others else named
