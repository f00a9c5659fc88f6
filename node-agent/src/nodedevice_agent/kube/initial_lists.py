"""Limits the first list and watch of each object: few at a time, within a budget.

An agent that starts asks for hundreds of objects at once, and an update starts agents by the hundred. The newest request comes
first: a plugin that has just registered waits for it.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import count

from nodedevice_common.pacing import TokenBucket

PER_SECOND = 50.0
AT_ONCE = 25
# requests without a response yet
MOST_UNDER_WAY = 20

LIST, WATCH = 0, 1


class Turns:
    """The turns of one agent. All lists come before any watch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bucket = TokenBucket(PER_SECOND, AT_ONCE, clock())
        self._numbers = count()
        # rank, a number that falls with each request, and the future to resolve
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, rank: int) -> ExitStack:
        """Wait for a turn; close() ends it, at the API server's response. rank: LIST or WATCH."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, -next(self._numbers), given))
        self._give()
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                # the turn came at this moment
                self._ended()
            raise
        turn = ExitStack()
        turn.callback(self._ended)
        return turn

    def _give(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._under_way < MOST_UNDER_WAY:
            given, now = self._waiting[0][2], self._clock()
            if not given.cancelled():
                seconds = self._bucket.wait_seconds(now)
                if seconds > 0.0:
                    self._timer = asyncio.get_running_loop().call_later(seconds, self._give)
                    return
                self._bucket.take(now)
                self._under_way += 1
                given.set_result(None)
            heappop(self._waiting)

    def _ended(self) -> None:
        self._under_way -= 1
        self._give()
