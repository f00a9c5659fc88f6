"""Tells of a policy that cannot be read, and of one that can be read again: each once, with what comes of it and what to do.

An API server that is away or busy, or does not know us, is told by whoever watches over it. Sends nothing.
"""

import logging
from typing import Any, Final

from nodedevice_operator.errors import ApiError, Unauthorized, Unavailable, Unreachable

log = logging.getLogger(__name__)

RIGHTS: Final = {"remedy": "see requiredPlugins in docs/security.md"}


class PolicyReads:
    """What is being read is named by its plural."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, kind: str, error: ApiError, *, was_read: bool) -> None:
        """A read failed. was_read: an earlier one did not, so what is known of it still counts."""
        # a 500 is about this one request
        is_away = isinstance(error, Unreachable) or (isinstance(error, Unavailable) and error.status != 500)
        if is_away or isinstance(error, Unauthorized) or kind in self._failing:
            return
        self._failing.add(kind)
        fields: dict[str, Any] = {"kind": kind, "problem": str(error), **RIGHTS}
        if was_read:
            log.warning("policy cannot be read: what others do to it is not undone until it can", extra=fields)
        else:
            log.error("policy cannot be read: resource names are not advertised until it can", extra=fields)

    def worked(self, kind: str) -> None:
        """A read did not fail."""
        if kind in self._failing:
            self._failing.discard(kind)
            log.info("policy can be read again", extra={"kind": kind})
