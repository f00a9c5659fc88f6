"""Checks whether a connected plugin still responds: a stopped or hanging process keeps its connection and its devices.

The check requests the options periodically, but not while another call is under way. After two timeouts in a row the plugin counts
as silent until its next response; an error is also a response. A call counts only if this process itself ran meanwhile. HTTP/2
pings do not work: servers of grpc-go close a connection that pings more often than every five minutes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

ASK_EVERY_SECONDS: Final = 30.0
MOST_MISSES: Final = 2
_BEAT_SECONDS: Final = 1.0
# the share of the beats due during a call that must arrive
_BEATS_SHARE: Final = 0.5


class Answers:
    """Counts the consecutive timeouts of one plugin. on_change: called with each change: whether it responds."""

    def __init__(self, on_change: Callable[[bool], None] = lambda does: None) -> None:
        self.on_change = on_change
        self._misses = 0
        self.under_way = 0

    @property
    def is_silent(self) -> bool:
        return self._misses >= MOST_MISSES

    def missed(self) -> None:
        """A call timed out."""
        was_silent, self._misses = self.is_silent, self._misses + 1
        if self.is_silent and not was_silent:
            self.on_change(False)

    def came(self) -> None:
        """A call got a response."""
        was_silent, self._misses = self.is_silent, 0
        if was_silent:
            self.on_change(True)

    async def work(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Check until cancelled. ask: makes the call, within `during`."""
        while True:
            await asyncio.sleep(ASK_EVERY_SECONDS)
            if not self.under_way:
                await ask()

    def during(self) -> "_Call":
        """The context of one call: its TimeoutError is a miss, and any other end a response."""
        return _Call(self)


class _Call:
    """One call, and whether this process ran during it."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._beats = 0
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)

    def __enter__(self) -> None:
        self._answers.under_way += 1

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, _: object) -> None:
        self._timer.cancel()
        self._answers.under_way -= 1
        if isinstance(failure, TimeoutError):
            due = (self._loop.time() - self._began) / _BEAT_SECONDS
            if self._beats >= due * _BEATS_SHARE - 1:
                self._answers.missed()
        elif kind is None or not issubclass(kind, asyncio.CancelledError):
            self._answers.came()

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)
