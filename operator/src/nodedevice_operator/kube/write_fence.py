"""The gate that every write passes: open until a deadline, and checked when its connection is there, just before it is sent.

Whoever was stopped, suspended or held up on the way to the API server finds it closed. Knows nothing of why it is open.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from nodedevice_operator.errors import NotLeading


def boot_seconds() -> float:
    """Seconds of a clock that nobody sets, and that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WriteGate:
    """Open until a moment; closed at first. May be asked by any thread: there is one number."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._until = -math.inf

    @property
    def is_open(self) -> bool:
        return self._clock() < self._until

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


def gated_pools(gate: WriteGate) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Connection pools by scheme, for a urllib3 pool manager, whose connections send no write through a closed gate."""

    class Plain(HTTPConnection):
        write: tuple[str, str] | None = None

        def request(self, method: str, url: str, *args: Any, **options: Any) -> None:
            self.write = None if method == "GET" else (method, url)
            super().request(method, url, *args, **options)

        def send(self, data: Any) -> None:
            # each part just before it goes: many threads may come between a question and its use, and half a write is none
            if self.write is not None:
                gate.check(*self.write)
            super().send(data)

    class Secure(Plain, HTTPSConnection):
        pass

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
