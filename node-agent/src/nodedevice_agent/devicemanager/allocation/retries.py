"""What waits, by pod or by call, and when the next of it is tried again. Pure."""

from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)


class Retries(dict[K, PendingAllocation]):
    """Written by key alone."""

    def __init__(self, known: Iterable[tuple[K, PendingAllocation]] = ()) -> None:
        super().__init__()
        self._deadlines: Deadlines[K] = Deadlines(self._time_of)
        for key, pending in known:
            self[key] = pending

    def __setitem__(self, key: K, pending: PendingAllocation) -> None:
        super().__setitem__(key, pending)
        self._deadlines.set(key, pending.retry_at)

    @property
    def next_retry(self) -> float | None:
        return self._deadlines.next()

    def _time_of(self, key: K) -> Collection[float | None]:
        return (self[key].retry_at,) if key in self else ()
