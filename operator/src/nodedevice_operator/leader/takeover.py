"""What would have been told and done while nobody led: kept by who stands by, for when it begins to lead.

The leader before it may have told what happened until about when it last renewed the Lease; what came later is untold. What is
too old, or too much, is forgotten: conditions tell the state in any case, and all nodes are looked at in the end.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from nodedevice_operator.events.transitions import Event
from nodedevice_operator.kube.write_fence import boot_seconds

_MOST_HELD: Final = 1000


class Handover:
    """The newest Events that were not ours to tell, and nodes that were not ours to look at, each with when it came up."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._held: deque[tuple[float, Event]] = deque(maxlen=_MOST_HELD)
        self._changed: dict[str, float] = {}

    def hold(self, event: Event) -> None:
        """Keep an Event in case that it turns out to be ours to tell."""
        self._held.append((self._clock(), event))

    def take(self, since: float) -> list[Event]:
        """Those that came up since that moment of the clock; none is held any more."""
        untold = [event for moment, event in self._held if moment >= since]
        self._held.clear()
        return untold

    def skip(self, node: str) -> None:
        """A node changed, and whoever leads looks at it."""
        self._changed.pop(node, None)
        self._changed[node] = self._clock()
        if len(self._changed) > _MOST_HELD:
            del self._changed[next(iter(self._changed))]

    def skipped(self, since: float) -> list[str]:
        """The nodes that changed since that moment of the clock; none is kept any more."""
        unseen = [node for node, moment in self._changed.items() if moment >= since]
        self._changed.clear()
        return unseen
