"""Limits how many binds are sent at a time, by what the API server accepts."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SendLimit:
    """Halved when the API server is busy, once for all that it refuses together; grows by one with as many successes.

    A refused bind keeps its place while it waits for its retry. Otherwise new ones would be sent in its stead, and it might wait
    for longer than kube-scheduler does.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._halved_until = 0.0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Waits for a place, first come, first served."""
        if self._used >= int(self._limit) or self._waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif not turn.cancelled():
                    self._free()
                raise
        else:
            self._used += 1
        try:
            yield
        finally:
            self._free()

    def succeeded(self) -> None:
        self._limit = min(self._limit + 1 / self._limit, self._most)

    def refused(self, seconds: float) -> None:
        """Notes that the API server is busy. seconds: until the retry."""
        now = asyncio.get_running_loop().time()
        if now >= self._halved_until:
            self._limit = max(self._limit / 2, 1)
            self._halved_until = now + seconds

    def _free(self) -> None:
        self._used -= 1
        while self._waiting and self._used < int(self._limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self._used += 1
                turn.set_result(None)
