"""The nodes that changed while this operator was not leading, so that it reconciles them first when it takes over.

The leader before it may have reconciled nodes until about when it last renewed the Lease; what changed later is still to be done.
What is too old, or too much, is forgotten: all nodes are reconciled in the end.
"""

from collections.abc import Callable
from typing import Final

from nodedevice_operator.kube.write_fence import boot_seconds

_MOST_HELD: Final = 1000


class Takeover:
    """The newest nodes that were not ours to reconcile, each with when it changed."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._changed: dict[str, float] = {}

    def skip(self, node: str) -> None:
        """A node changed, and the leader reconciles it."""
        self._changed.pop(node, None)
        self._changed[node] = self._clock()
        if len(self._changed) > _MOST_HELD:
            del self._changed[next(iter(self._changed))]

    def skipped(self, since: float) -> list[str]:
        """The nodes that changed since that moment of the clock; none is kept any more."""
        unseen = [node for node, moment in self._changed.items() if moment >= since]
        self._changed.clear()
        return unseen
