"""The holdings of a resource, for a device plugin that keeps state for each container: their content, and when they are sent.

A holding begins with the call of Allocate and ends when the devices are released: after the container has ended, or when the
transaction of its pod failed. The plugin removes its state for containers that are not listed. Therefore nothing is listed while
unknown allocations may exist.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from nodedevice_agent.devicemanager.manager import DeviceManager

# Pod UID and container.
HoldingKey = tuple[str, str]


class Holding(Struct, frozen=True):
    """One container's devices of a resource. response: as in Allocation, b"" if missing."""

    pod_uid: str
    container: str
    device_ids: tuple[str, ...]
    response: bytes

    @property
    def key(self) -> HoldingKey:
        return self.pod_uid, self.container


def holdings(manager: DeviceManager, resource_name: str) -> tuple[Holding, ...] | None:
    """All holdings of a resource, transactions in progress included; None after a lost checkpoint until recovery is complete, and
    while a pod is unseen: it may be a static pod that the runtime knows by another UID.
    """
    resource = manager.resources.get(resource_name)
    if resource is None or resource.is_attributed or manager.is_recovering or resource.use.possible_holders:
        return None
    held = manager.book.of_resource(resource_name)
    if any(a.pod_uid not in manager.pods and a.pod_uid not in manager.book.releasing for a in held):
        return None
    committed = [Holding(a.pod_uid, a.container, a.device_ids, a.response or b"") for a in held]
    return (*committed, *_in_progress(manager, resource_name))


def _in_progress(manager: DeviceManager, resource_name: str) -> Iterator[Holding]:
    for uid, current in manager.allocator.in_progress.items():
        for done in current.allocated:
            if done.resource_name == resource_name:
                yield Holding(uid, done.container, done.device_ids, done.response or b"")
        if current.request is not None and current.request.resource_name == resource_name and current.chosen:
            yield Holding(uid, current.request.container, current.chosen, b"")


class SyncedHoldings(Struct, eq=False):
    """The containers for which a plugin may keep state. A call whose pod ends meanwhile may reach the plugin after a later Sync:
    its container counts until a Sync that begins after the call has returned.
    """

    _endpoint: int | None = None
    _keys: set[HoldingKey] = set()
    _calls: Counter[HoldingKey] = field(default_factory=Counter)

    @contextmanager
    def allocating(self, key: HoldingKey) -> Iterator[None]:
        """Count a call of Allocate while it is in flight."""
        self._keys.add(key)
        self._calls[key] += 1
        try:
            yield
        finally:
            self._calls[key] -= 1
            # remove zero counts
            self._calls += Counter()

    def is_due(self, endpoint: int, current: Iterable[Holding]) -> bool:
        """Whether the plugin needs a Sync: it got none over that connection, or a holding without a call in flight has ended."""
        kept = {holding.key for holding in current} | self._calls.keys()
        return endpoint != self._endpoint or not self._keys <= kept

    def synced(self, endpoint: int, sent: Iterable[Holding]) -> None:
        self._endpoint, self._keys = endpoint, {holding.key for holding in sent} | self._calls.keys()
