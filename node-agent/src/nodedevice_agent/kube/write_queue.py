"""Queues the NodeDevices that wait to be written, by the decisions of the write budget."""

import asyncio
import time
from collections.abc import Callable
from itertools import count

from nodedevice_agent.kube.write_budget import WriteBudget, WriteShare

# long statuses that are sent at a time
_MOST_LONG = 2


class WriteQueue:
    """The write queue of one agent. An object that must wait is called at its turn, and then makes its newest status.

    making, sending: locks, held while a status is made and while a long one is sent: as objects, each takes megabytes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._budget = WriteBudget(clock())
        self._numbers = count()
        self._waiting: set[WriteShare] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.making = asyncio.Lock()
        self.sending = asyncio.Semaphore(_MOST_LONG)

    def share(self, on_turn: Callable[[], None]) -> WriteShare:
        """The share of a new object."""
        return WriteShare(self._clock(), on_turn, next(self._numbers))

    def is_waiting(self, share: WriteShare) -> bool:
        return share in self._waiting

    def may_write(self, share: WriteShare, *, is_loss: bool, is_bulk: bool = False) -> bool:
        """Whether it may write now, once; if not, it waits for its turn. is_loss, is_bulk: see WriteShare."""
        share.is_loss, share.is_bulk = is_loss, is_bulk
        if not share.has_turn:
            self._waiting.add(share)
            self._give_turns(share)
        had_turn, share.has_turn = share.has_turn, False
        return had_turn

    def spend(self, share: WriteShare) -> None:
        """Count one more write in the same turn."""
        self._budget.spend(share, self._clock())

    def leave(self, share: WriteShare) -> None:
        """Remove an object that has nothing to write."""
        self._waiting.discard(share)

    def _give_turns(self, asking: WriteShare | None = None) -> None:
        """Call the objects whose turn has come, except `asking`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            now = self._clock()
            share = self._budget.take_turn(self._waiting, now)
            if share is None:
                seconds = self._budget.wait_seconds(self._waiting, now)
                self._timer = asyncio.get_running_loop().call_later(seconds, self._give_turns)
                return
            self._waiting.discard(share)
            if share is not asking:
                share.on_turn()
