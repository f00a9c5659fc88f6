"""Device lists that are refused, or have invalid IDs, in the log: a line for each new error, and a sum where there are too many."""

import logging
from typing import Final

from nodedevice_common.pacing import TokenBucket

log = logging.getLogger(__name__)

# Of all plugins together. A plugin can send two such lists in turn, 50 a second for each of its names.
_LINES_PER_SECOND: Final = 0.2
_LINES_AT_ONCE: Final = 64


class ListErrors:
    """now: monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._lines = TokenBucket(_LINES_PER_SECOND, _LINES_AT_ONCE, now)
        self._unlogged = 0

    def add(self, resource_name: str, devices: int, error: str, now: float) -> None:
        """Another error than that of the list before it."""
        if not self._lines.take(now):
            self._unlogged += 1
            return
        extra: dict[str, object] = {"resource_name": resource_name, "devices": devices, "error": error}
        if self._unlogged:
            extra["more"] = self._unlogged
        self._unlogged = 0
        log.error("invalid device list", extra=extra)
