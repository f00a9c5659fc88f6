"""Provisional reservations of parts, from the filter of a pod to its bind."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from nodedevice_api.assigned_parts import Assigned

from nodedevice_operator.objects.bound_pod import PodNeeds

# From a pod's filter to its bind.
TENTATIVE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Tentative:
    uid: str
    node: str
    needs: PodNeeds
    assigned: Assigned


class Tentatives:
    """At most one reservation for each pod UID. Times are monotonic seconds."""

    def __init__(self) -> None:
        # with its end; the first one ends first
        self._by_uid: dict[str, tuple[Tentative, float]] = {}
        self._on: dict[str, dict[str, Tentative]] = {}
        self._doubtful: set[str] = set()

    def on(self, node: str) -> Collection[Tentative]:
        return self._on.get(node, {}).values()

    def nodes(self) -> Iterator[str]:
        return iter(self._on)

    def put(self, tentative: Tentative, now: float) -> None:
        """Adds a reservation for a while. The pod must not have another one."""
        self._by_uid[tentative.uid] = tentative, now + TENTATIVE_SECONDS
        self._on.setdefault(tentative.node, {})[tentative.uid] = tentative

    def remove(self, uid: str) -> Tentative | None:
        """Removes the pod's reservation. Returns it."""
        found = self._by_uid.pop(uid, None)
        if found is None:
            return None
        node = found[0].node
        self._doubtful.discard(uid)
        del self._on[node][uid]
        if not self._on[node]:
            del self._on[node]
        return found[0]

    def doubt(self, node: str) -> None:
        """Notes that something else may have the reserved parts of that node."""
        self._doubtful.update(self._on.get(node, ()))

    def certain(self, uid: str) -> Tentative | None:
        """The pod's reservation, if nothing else can have its parts."""
        found = self._by_uid.get(uid)
        return found[0] if found is not None and uid not in self._doubtful else None

    def expired(self, now: float) -> list[Tentative]:
        """Removes the expired reservations."""
        expired = [tentative for tentative, _ in takewhile(lambda pair: pair[1] <= now, self._by_uid.values())]
        for tentative in expired:
            self.remove(tentative.uid)
        return expired
