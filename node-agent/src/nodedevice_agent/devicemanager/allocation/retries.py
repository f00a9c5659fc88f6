"""Waiting pods or calls, and the time of the next retry. Pure."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)


class Retries(dict[K, PendingAllocation]):
    """Changed by key alone. kind: "pods", or the reason of failed calls."""

    def __init__(self, deadlines: Deadlines, kind: str) -> None:
        super().__init__()
        self._deadlines = deadlines
        self.kind = kind

    def __setitem__(self, key: K, pending: PendingAllocation) -> None:
        super().__setitem__(key, pending)
        self._deadlines.set(self.kind, key, pending.retry_at)

    def remove(self, key: K) -> PendingAllocation | None:
        if key not in self:
            return None
        self._deadlines.set(self.kind, key, None)
        return super().pop(key)

    def remove_where(self, holds: Callable[[K], bool]) -> list[K]:
        found = [key for key in self if holds(key)]
        for key in found:
            self.remove(key)
        return found
