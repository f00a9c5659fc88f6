"""The fence that every write passes: open until a deadline, and checked when its connection is there, just before its first byte.

A process that was stopped, suspended or delayed on the way to the API server finds the fence closed. Does not know why it is open.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from nodedevice_operator.errors import NotLeading


def boot_seconds() -> float:
    """Seconds of a clock that cannot be set, and that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WriteFence:
    """Open until a moment; closed at first. May be read by any thread: it is one number."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        # the deadline is set by it, in seconds
        self.clock = clock
        self._until = -math.inf

    @property
    def is_open(self) -> bool:
        return self.clock() < self._until

    def open_until(self, moment: float) -> None:
        self._until = moment

    def open_for_good(self) -> None:
        self._until = math.inf

    def close(self) -> None:
        self._until = -math.inf

    def check(self, verb: str, what: str) -> None:
        """Raises NotLeading when a write must not be sent now."""
        if not self.is_open:
            raise NotLeading(verb, what, "this operator does not lead, or its time as leader is over")


def fenced_requests(fence: WriteFence) -> type[aiohttp.ClientRequest]:
    """A class of requests, for an aiohttp session, that sends no byte of a write through a closed fence.

    aiohttp calls `send` when the request has its connection, and `write_bytes` in a task of its own when there is a body; headers
    and body leave in one piece in the second. A check raises before anything is written, and aiohttp closes the connection.
    """

    class FencedRequest(aiohttp.ClientRequest):
        def _check(self) -> None:
            if self.method != "GET":
                fence.check(self.method, self.url.path)

        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            self._check()
            return await super().send(conn)

        async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
            try:
                # again: the loop has turned since `send`, and the process may have been stopped meanwhile
                self._check()
            except NotLeading as closed:
                # who waits for the response gets this error
                conn.protocol.set_exception(closed)
                conn.close()
                return
            await super().write_bytes(writer, conn, content_length)

    return FencedRequest
