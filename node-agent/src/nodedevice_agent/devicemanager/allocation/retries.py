"""Waiting pods or calls, and the time of the next retry. Pure."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)


class Retries(dict[K, PendingAllocation]):
    """Changed by key alone. deadlines: of the device manager; what: a word for the kind of pods or calls."""

    def __init__(self, deadlines: Deadlines, what: str) -> None:
        super().__init__()
        self._deadlines = deadlines
        self._what = what

    def __setitem__(self, key: K, pending: PendingAllocation) -> None:
        super().__setitem__(key, pending)
        self._deadlines.set(self._what, key, pending.retry_at)

    def remove(self, key: K) -> PendingAllocation | None:
        """Remove an entry. Returns it, if any."""
        if key not in self:
            return None
        self._deadlines.set(self._what, key, None)
        return super().pop(key)

    def remove_where(self, holds: Callable[[K], bool]) -> list[K]:
        """Remove the entries with matching keys. Returns these keys."""
        found = [key for key in self if holds(key)]
        for key in found:
            self.remove(key)
        return found
