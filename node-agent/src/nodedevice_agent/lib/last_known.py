"""Keeps the last content read from a path while it cannot be read: no free descriptor, a defect, a hang (see patient_reads).

A missing file is a result, and replaces the content.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from nodedevice_agent.lib.filesystem import is_absent
from nodedevice_agent.lib.patient_reads import ask

T = TypeVar("T")

# a node has some hundred such files; of more the oldest are forgotten
_MAX_KNOWN: Final = 4096


class LastKnown(Generic[T]):
    """absent: for a path with nothing there, or with nothing of that kind, or that was never read."""

    def __init__(self, read: Callable[[str], T], absent: T) -> None:
        self._read = read
        self._absent = absent
        self._known: dict[str, T] = {}

    def of(self, path: str) -> T:
        known = self._known.get(path, self._absent)
        try:
            known = ask(self._read, path)
        except (OSError, UnicodeDecodeError) as error:
            if not isinstance(error, OSError) or is_absent(error):
                self._known.pop(path, None)
                return self._absent
        self._known.pop(path, None)
        self._known[path] = known
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return known
