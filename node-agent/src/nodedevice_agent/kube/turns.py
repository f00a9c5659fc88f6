"""When the first list and watch of each object are sent: few at a time, and no faster than a budget.

An agent that starts asks for hundreds of objects at once, and an update starts agents by the hundred. A slow API server is asked
more slowly. What began last comes first: a plugin that has registered just now, while those from before the start lack nothing.
"""

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from nodedevice_common.pacing import TokenBucket

PER_SECOND = 50.0
AT_ONCE = 25
# that the API server has not answered yet
MOST_UNDER_WAY = 20

LIST, WATCH = 0, 1


class Turns:
    """Of one agent. All lists come before any watch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bucket = TokenBucket(PER_SECOND, AT_ONCE, clock())
        self._numbers = count()
        # rank, a number that is lower for what came later, and what is done when it is its turn
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, rank: int) -> "Turn":
        """Wait for a turn. rank: LIST or WATCH."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, -next(self._numbers), given))
        self._give()
        turn = Turn(self._ended)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                # it was given at this very moment
                turn.end()
            raise
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


class Turn:
    """end() once the API server has answered; more than once does nothing. on_end: None where nobody waits for that."""

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self._on_end = on_end

    def end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()
