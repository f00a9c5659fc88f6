"""Deadlines: one time for each of many events, and the earliest of all. Pure.

A replaced or removed time leaves the heap when it comes first, or when such times outnumber the current ones.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count

_FEW = 64


class Deadlines:
    """Times in monotonic seconds, by the kind of event, a word, and its subject."""

    def __init__(self) -> None:
        self._times: dict[str, dict[Hashable, float]] = {}
        # with a number, so that keys are never compared
        self._heap: list[tuple[float, int, str, Hashable]] = []
        self._numbers = count()
        self._most = _FEW
        # whether a time was set since this was set to False
        self.are_changed = False

    def set(self, what: str, key: Hashable, at: float | None) -> None:
        """Set the time of an event; None removes it."""
        times = self._times.setdefault(what, {})
        if at is None:
            self.are_changed |= times.pop(key, None) is not None
        elif times.get(key) != at:
            times[key] = at
            self.are_changed = True
            heappush(self._heap, (at, next(self._numbers), what, key))
            if len(self._heap) > self._most:
                self._rebuild()

    def next(self) -> float | None:
        while self._heap:
            at, _, what, key = self._heap[0]
            if self._times[what].get(key) == at:
                return at
            heappop(self._heap)
        return None

    def _rebuild(self) -> None:
        kept = ((at, what, key) for what, times in self._times.items() for key, at in times.items())
        self._heap = [(at, next(self._numbers), what, key) for at, what, key in kept]
        heapify(self._heap)
        self._most = 2 * len(self._heap) + _FEW
