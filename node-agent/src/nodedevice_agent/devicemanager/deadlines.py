"""The earliest of many times, each of which may move or be taken back: a heap of all that were set. Pure.

What does not count any more leaves the heap when it comes first, or when there is more of it than of what counts.
"""

from collections.abc import Callable, Collection, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FEW = 64


class Deadlines(Generic[K]):
    """current: the times of a key as they are now, each of which set() was called with; none for a key that is gone."""

    def __init__(self, current: Callable[[K], Collection[float | None]]) -> None:
        self._current = current
        # with a number, so that keys are never compared
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()
        self._most = _FEW

    def set(self, key: K, at: float | None) -> None:
        """It is, from now on, one of the times of that key."""
        if at is None:
            return
        heappush(self._heap, (at, next(self._numbers), key))
        if len(self._heap) > self._most:
            counts = {(entry[0], entry[2]): entry for entry in self._heap if self._counts(entry)}
            self._heap = list(counts.values())
            heapify(self._heap)
            self._most = 2 * len(self._heap) + _FEW

    def next(self) -> float | None:
        while self._heap and not self._counts(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _counts(self, entry: tuple[float, int, K]) -> bool:
        return entry[0] in self._current(entry[2])
