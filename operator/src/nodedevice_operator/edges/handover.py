"""What would have been told while nobody led: kept by who stands by, and told by it when it begins to lead.

The leader before it may have told what happened until about when it last renewed the Lease; what came later is untold. What is
too old, or too much, is forgotten: conditions tell the state in any case.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from nodedevice_operator.core.events import Event
from nodedevice_operator.edges.gate import boot_seconds

_MOST_HELD: Final = 1000


class Handover:
    """The newest Events that were not ours to tell, each with when it came up."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._held: deque[tuple[float, Event]] = deque(maxlen=_MOST_HELD)

    def hold(self, event: Event) -> None:
        """Keep an Event in case that it turns out to be ours to tell."""
        self._held.append((self._clock(), event))

    def take(self, since: float) -> list[Event]:
        """Those that came up since that moment of the clock; none is held any more."""
        untold = [event for moment, event in self._held if moment >= since]
        self._held.clear()
        return untold
