"""The holdings of a resource, for a device plugin that keeps something for each container: what they are, and when it gets them.

A holding begins with the call of Allocate and ends when the devices are released: after the container has ended, or when the
transaction of its pod failed. The plugin removes what it keeps for containers that are not listed, so nothing is listed while
allocations may exist that are not known here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from nodedevice_agent.devicemanager.manager import DeviceManager

# Pod UID and container.
HoldingKey = tuple[str, str]


class Holding(Struct, frozen=True):
    """One container's devices of a resource. response: as in Allocation, b"" where there is none."""

    pod_uid: str
    container: str
    device_ids: tuple[str, ...]
    response: bytes

    @property
    def key(self) -> HoldingKey:
        return self.pod_uid, self.container


def holdings(manager: DeviceManager, resource_name: str) -> tuple[Holding, ...] | None:
    """All holdings of a resource, transactions in progress included; None while they are not known for sure.

    Not known: the checkpoint was lost and nothing is recovered yet, or not everything; or a pod has not been seen, which may be a
    static pod that the runtime knows by another UID.
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


class SyncedHoldings:
    """What a plugin may keep something for: the containers of its last successful Sync, and of calls of Allocate since.

    A call whose pod ends meanwhile may reach the plugin after a Sync that was sent later: its container counts until a Sync
    that begins after the call has returned.
    """

    def __init__(self) -> None:
        self._endpoint: int | None = None
        self._keys: set[HoldingKey] = set()
        self._calls: Counter[HoldingKey] = Counter()

    @contextmanager
    def allocating(self, key: HoldingKey) -> Iterator[None]:
        """While Allocate is called for it."""
        self._keys.add(key)
        self._calls[key] += 1
        try:
            yield
        finally:
            self._calls[key] -= 1
            # without those of which none is left
            self._calls += Counter()

    def is_due(self, endpoint: int, current: Iterable[Holding]) -> bool:
        """Whether the plugin has got no holdings over that connection yet, or one has ended that no call is in flight for."""
        kept = {holding.key for holding in current} | self._calls.keys()
        return endpoint != self._endpoint or not self._keys <= kept

    def synced(self, endpoint: int, sent: Iterable[Holding]) -> None:
        self._endpoint, self._keys = endpoint, {holding.key for holding in sent} | self._calls.keys()
