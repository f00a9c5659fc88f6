"""The fence that every write passes: open until a deadline, and checked just before the first byte is sent.

A process that was stopped, suspended or delayed on the way to the API server finds the fence closed. Does not know why it is open.
"""

import math
import time
from collections.abc import Callable

from nodedevice_kube.api_errors import NotLeading


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
