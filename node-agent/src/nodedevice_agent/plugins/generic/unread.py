"""Paths that a scan could not read, and since when: a device missing there may still exist. Without I/O."""

import logging
from collections.abc import Mapping
from typing import Final

from nodedevice_agent.plugins.generic.doubt import KEPT_SECONDS

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class Unread:
    """Unread paths of one resource."""

    def __init__(self, resource_name: str) -> None:
        self._resource_name = resource_name
        self._since: dict[str, float] = {}
        # whether the last scan proves nothing about devices that it did not find
        self.is_doubtful = False
        # a path that could not be read, and why, for people; empty without one
        self.example = ""

    def note(self, errors: Mapping[str, str], now: float) -> None:
        """Call after each scan. errors: the reason by unread path. now: monotonic seconds. Each path is logged once."""
        self.example = next((f"{path} cannot be read ({error})" for path, error in errors.items()), "")
        new = [path for path in errors if path not in self._since]
        self._since = {path: self._since.get(path, now) for path in errors}
        self.is_doubtful = any(now - since < KEPT_SECONDS for since in self._since.values())
        if new:
            extra = {
                "resource_name": self._resource_name,
                "path": new[0],
                "paths": len(new),
                "error": errors[new[0]],
                "retry_in_seconds": RETRY_SECONDS,
            }
            log.warning("cannot read files of the host; devices that were there are kept for a minute", extra=extra)
