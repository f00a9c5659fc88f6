"""Whether a connected plugin still answers: a process that is stopped, or hangs, keeps its connection and its devices.

It is asked for its options now and then. Two calls in a row that have no answer in time, and it counts as silent until it answers
one; any answer counts, an error, too. It is not asked while another call is under way, which counts by its own deadline, and a call
counts only if this process itself ran meanwhile. Not by HTTP/2 pings: servers of grpc-go close a connection that pings more often
than every five minutes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

ASK_EVERY_SECONDS: Final = 30.0
MOST_MISSES: Final = 2
_BEAT_SECONDS: Final = 1.0
# of the beats that are due during a call, so many have to come
_BEATS_SHARE: Final = 0.5


class Answers:
    """Of one plugin, in a row. on_change: called with whether it answers, each time that this changes."""

    def __init__(self, on_change: Callable[[bool], None] = lambda does: None) -> None:
        self.on_change = on_change
        self._misses = 0
        self._under_way = 0

    @property
    def is_silent(self) -> bool:
        return self._misses >= MOST_MISSES

    def missed(self) -> None:
        """A call had no answer in time."""
        was_silent, self._misses = self.is_silent, self._misses + 1
        if self.is_silent and not was_silent:
            self.on_change(False)

    def came(self) -> None:
        """A call had an answer."""
        was_silent, self._misses = self.is_silent, 0
        if was_silent:
            self.on_change(True)

    async def work(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Ask, for ever. ask: makes the call, by `during`."""
        while True:
            await asyncio.sleep(ASK_EVERY_SECONDS)
            if not self._under_way:
                await ask()

    def during(self) -> "_Call":
        """Around one call: its TimeoutError, raised where it had no answer in time, is a miss, and any other end an answer."""
        return _Call(self)

    def began(self) -> None:
        self._under_way += 1

    def ended(self) -> None:
        self._under_way -= 1


class _Call:
    """One call, and whether this process ran during it."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._beats = 0
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)

    def __enter__(self) -> None:
        self._answers.began()

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, _: object) -> None:
        self._timer.cancel()
        self._answers.ended()
        if isinstance(failure, TimeoutError):
            due = (self._loop.time() - self._began) / _BEAT_SECONDS
            if self._beats >= due * _BEATS_SHARE - 1:
                self._answers.missed()
        elif kind is None or not issubclass(kind, asyncio.CancelledError):
            self._answers.came()

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)
