"""A bounded queue whose origins take turns, so that a busy origin does not delay others."""

import asyncio
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_NOBODY: Final = ""


class FairQueue(Generic[T]):
    """The origins take turns. most: may wait in all; then the oldest item of the origin with the most items is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        # whose turn it is comes first
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._has_any = asyncio.Event()

    def put(self, item: T, origin: str = _NOBODY) -> T | None:
        """Add it; return the one that gave way, if any."""
        self._waiting.setdefault(origin, deque()).append(item)
        self._count += 1
        self._has_any.set()
        if self._count <= self._most:
            return None
        return self._take(max(self._waiting, key=lambda each: len(self._waiting[each])))

    async def get(self) -> T:
        await self._has_any.wait()
        origin = next(iter(self._waiting))
        item = self._take(origin)
        if origin in self._waiting:
            self._waiting.move_to_end(origin)
        return item

    def _take(self, origin: str) -> T:
        items = self._waiting[origin]
        item = items.popleft()
        self._count -= 1
        if not items:
            del self._waiting[origin]
        if not self._waiting:
            self._has_any.clear()
        return item
