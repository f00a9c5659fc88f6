"""The cached state of the cluster: slim records, filled by lists and watches, and the handlers of changes.

Each kind is a store. A record older than the stored one is ignored, so neither the echo of an own write nor a late event counts as
a change. A store is complete once a whole list has gone into it: before that an absent record proves nothing. An object that exists
and cannot be decoded is invalid: its last record stays.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeVar

from nodedevice_api import names

from nodedevice_operator.informers.memory_bounds import NODE_DEVICE_BOUNDS, Bounds, Newest
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.poddevice import PodDeviceRecord

# Responses to own writes may arrive after the deletion of the object; so many deleted UIDs are remembered. An object that
# leaves a watch's selector seems deleted, and comes back with the same UID and a newer version.
_REMEMBERED_GONE: Final = 4096

K = TypeVar("K", bound=Hashable)


class Record(Protocol):
    """What a store asks of a record: which object, which version of it, and which node it is about."""

    @property
    def key(self) -> Any: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> int: ...
    @property
    def node(self) -> str: ...


R = TypeVar("R", bound=Record)

# Called with the node of an object, and its record before and after the change (None: absent).
UpdateHandler = Callable[[str, R | None, R | None], None]

# So many keys of one node are a tuple, a fifth of a dictionary, which each new key copies.
_FEW: Final = 32
# Records between two yields to the loop, of a few microseconds each.
_STEP: Final = 1000


class Store(Generic[K, R]):
    """Records of one kind, by key and by node.

    What a watch shows goes in by `update` and `delete`, which call the handlers. A list goes in by `replace`, and responses to our
    own writes by `put` and `remove`: these call none. bounds: what may be kept of one node, and how many of its records count.
    """

    def __init__(self, bounds: Bounds[Any] | None = None) -> None:
        self.is_complete = False
        self._bounds = bounds
        # for reading only
        self.by_key: dict[K, R] = {}
        self._by_node: dict[str, tuple[K, ...] | dict[K, None]] = {}
        # by node, with bounds: the weight of its records, and the records that count if there are too many
        self._weights: dict[str, int] = {}
        self._newest: dict[str, Newest] = {}
        self._oldest: dict[str, list[K]] = {}
        # by UID: the version in which it was gone
        self._gone: dict[str, float] = {}
        self._invalid: set[K] = set()
        self._handlers: list[UpdateHandler[R]] = []
        # called with each object that a list after the first shows changed, as no watch has shown it
        self.on_relist: UpdateHandler[R] = lambda node, before, now: None

    def empty(self) -> "Store[K, R]":
        """Another store with the same bounds."""
        return Store(self._bounds)

    def on_update(self, handler: UpdateHandler[R]) -> None:
        """Calls `handler` at each change from a watch, not from a list."""
        self._handlers.append(handler)

    def update(self, record: R) -> None:
        """Stores a watched object, and calls the handlers if the record changed."""
        before = self.by_key.get(record.key)
        if self.put(record):
            self._notify(record.node, before, self.by_key[record.key])
            if before is not None and before.node != record.node:
                self._notify(before.node, before, None)

    def delete(self, key: K, uid: str, node: str, version: float = math.inf) -> None:
        """Removes an object that a watch shows as deleted, and calls the handlers if it was stored."""
        before = self.by_key.get(key)
        if self.remove(key, uid, version):
            self._notify(node, before, None)

    def _notify(self, node: str, before: R | None, now: R | None) -> None:
        for handler in self._handlers:
            handler(node, before, now)

    def get(self, key: K) -> R | None:
        return self.by_key.get(key)

    def values(self) -> list[R]:
        return list(self.by_key.values())

    def same(self, record: R) -> R | None:
        """The stored record, if it is the same version of the same object."""
        held = self.by_key.get(record.key)
        is_same = held is not None and held.resource_version == record.resource_version and held == record
        return held if is_same else None

    def of_uids(self, uids: Container[str]) -> list[R]:
        return [record for record in self.by_key.values() if record.uid in uids]

    def of_node(self, node: str) -> list[R]:
        """Records about that node: with bounds, the oldest of too many."""
        if self.left_out(node) == 0:
            return self._all_of(node)
        if node not in self._oldest:
            assert self._bounds is not None
            self._oldest[node] = [record.key for record in self._bounds.oldest(self._all_of(node))]
        return [self.by_key[key] for key in self._oldest[node]]

    def counting(self) -> list[R]:
        return [record for node in self._by_node for record in self.of_node(node)]

    async def counting_in_steps(self) -> AsyncIterator[list[R]]:
        """A snapshot of `counting`, in chunks: other tasks run in between."""
        found = self.counting()
        for first in range(0, len(found), _STEP):
            yield found[first : first + _STEP]
            await asyncio.sleep(0)

    def counts(self, record: R) -> bool:
        """Whether a record that is held counts."""
        if self.left_out(record.node) == 0:
            return True
        last: Any = self.of_node(record.node)[-1]
        weighed: Any = record
        return bool(weighed.age <= last.age)

    def count(self, node: str) -> int:
        return len(self._by_node.get(node, ()))

    def left_out(self, node: str) -> int:
        """How many records about that node do not count, as there are too many."""
        return max(0, self.count(node) - self._bounds.most_objects) if self._bounds is not None else 0

    def _all_of(self, node: str) -> list[R]:
        return [self.by_key[key] for key in self._by_node.get(node, ())]

    def is_about(self, node: str) -> bool:
        return node in self._by_node

    def nodes(self) -> frozenset[str]:
        return frozenset(self._by_node)

    def put(self, record: R) -> bool:
        """Stores a record unless a newer one is stored; returns whether the record changed."""
        key: K = record.key
        held = self.by_key.get(key)
        if held is not None and record.resource_version <= held.resource_version:
            return False
        if record.uid in self._gone:
            if record.resource_version <= self._gone[record.uid]:
                return False
            del self._gone[record.uid]
        if held is not None and held.node != record.node:
            self._unlink(key, held)
        self.by_key[key] = record
        if held is None or held.node != record.node:
            self._link(key, record.node)
        elif held.uid != record.uid:
            self._oldest.pop(record.node, None)
        if self._bounds is not None:
            self._weigh(record, held if held is not None and held.node == record.node else None)
        was_invalid = self.is_invalid(key)
        self._invalid.discard(key)
        return was_invalid or held is None or held != self.by_key[key]

    def mark_invalid(self, key: K) -> bool:
        """Notes that the object of that key exists and cannot be decoded; returns whether that is new."""
        is_new = key not in self._invalid
        self._invalid.add(key)
        return is_new

    def is_invalid(self, key: K) -> bool:
        """Whether that object exists and cannot be decoded, so that its record proves nothing."""
        return key in self._invalid

    def is_gone(self, uid: str) -> bool:
        """Whether the object of that uid is among the last removed ones."""
        return uid in self._gone

    def remove(self, key: K, uid: str, version: float = math.inf) -> bool:
        """Remove the object with this UID; returns whether it was stored. Only records newer than `version` bring it back."""
        self._gone[uid] = version
        if len(self._gone) > _REMEMBERED_GONE:
            del self._gone[next(iter(self._gone))]
        was_invalid = self.is_invalid(key)
        self._invalid.discard(key)
        held = self.by_key.get(key)
        if held is None or held.uid != uid:
            return was_invalid
        del self.by_key[key]
        self._unlink(key, held)
        return True

    def replace(
        self,
        listed: Iterable[R],
        resource_version: int,
        undecoded: Collection[K | None] = (),
        stored: Container[str] = (),
    ) -> frozenset[str]:
        """Stores a whole list of that version; returns the nodes with changes.

        Records that the list lacks are removed, unless they are newer than the list. undecoded: keys of its objects that cannot be
        decoded; None stands for an unknown key, and then nothing is removed. stored: UIDs of its objects that are stored already.
        """
        named = {key for key in undecoded if key is not None}
        is_all_named = len(named) == len(undecoded)
        invalid = named if is_all_named else self._invalid | named
        # objects that can be decoded again: reconciles have waited for them, even if they are unchanged
        changed = {self.by_key[key].node for key in self._invalid - invalid if key in self.by_key}
        self._invalid = invalid
        # not keys, which would be as many new objects: there are a hundred thousand pods
        uids = set[str]()
        for record in listed:
            uids.add(record.uid)
            before = self.by_key.get(record.key)
            if self.put(record):
                changed.add(record.node)
                if self.is_complete and before is not None and before.uid == record.uid:
                    self.on_relist(record.node, before, self.by_key[record.key])
        gone = [
            (key, held)
            for key, held in (self.by_key.items() if is_all_named else ())
            if key not in named
            and held.uid not in uids
            and held.uid not in stored
            and held.resource_version < resource_version
        ]
        for key, held in gone:
            self.remove(key, held.uid, resource_version)
            changed.add(held.node)
        self.is_complete = True
        return frozenset(changed)

    def expire(self) -> None:
        """After a restore the next list counts as newer than all records, and removed UIDs may exist again."""
        self._gone.clear()
        for key in self.by_key:
            held: Any = self.by_key[key]
            self.by_key[key] = replace(held, resource_version=0)

    def _weigh(self, record: Any, held: Any) -> None:
        """Keeps within the bounds after that record was stored. held: the record that it replaced."""
        assert self._bounds is not None
        node, most = record.node, self._bounds.most_bytes
        weight = self._weights.get(node, 0) + record.weight - (held.weight if held is not None else 0)
        newest = self._newest.get(node)
        if newest is None and weight > most:
            walked: Any = self._all_of(node)
            newest = self._newest[node] = Newest(walked)
        elif newest is not None and record.weight:
            newest.add(record.age)
        while newest and weight > most:
            weight -= self._reduce(node, newest.pop())
        self._weights[node] = weight
        if newest is not None and (2 * weight < most or len(newest) > 2 * self.count(node)):
            del self._newest[node]

    def _reduce(self, node: str, age: tuple[str, str]) -> int:
        """What less the record of that age weighs without its lists."""
        key: Any = age[1]
        found: Any = self.by_key.get(key)
        if found is None or not found.weight or (found.node, found.age) != (node, age):
            return 0
        assert self._bounds is not None
        less: Any = self._bounds.without_lists(found)
        self.by_key[less.key] = less
        self.on_reduced(less)
        return int(found.weight - less.weight)

    def on_reduced(self, record: R) -> None:
        """A record lost its lists, as its node has too much."""

    def _link(self, key: K, node: str) -> None:
        records: Any = self.by_key
        oldest = self._oldest.get(node)
        if oldest and records[key].age < records[oldest[-1]].age:
            del self._oldest[node]
        keys = self._by_node.get(node, ())
        if isinstance(keys, dict):
            keys[key] = None
        elif len(keys) < _FEW:
            self._by_node[node] = (*keys, key)
        else:
            self._by_node[node] = dict.fromkeys((*keys, key))

    def _unlink(self, key: K, held: R) -> None:
        node = held.node
        if key in self._oldest.get(node, ()):
            del self._oldest[node]
        keys = self._by_node.get(node, ())
        if isinstance(keys, dict):
            keys.pop(key, None)
        else:
            self._by_node[node] = tuple(other for other in keys if other != key)
        if self._bounds is not None:
            weighed: Any = held
            self._weights[node] -= weighed.weight
        if not self._by_node[node]:
            del self._by_node[node]
            self._weights.pop(node, None)
            self._newest.pop(node, None)


class Stores:
    """The stores of the kinds that a program watches, by plural, and their newest version. labels: the kinds in words."""

    def __init__(self, stores: Mapping[str, Store[Any, Any]], labels: Sequence[str]) -> None:
        self.stores = stores
        self._labels = labels
        # called with the name of each node about which a list changes something, once every list is complete
        self.on_list: Callable[[str], None] = lambda _: None
        # the highest version that any list or watch has shown: the API server has one count for all kinds
        self.newest = 0
        # how often it went back
        self.restores = 0
        # set once every list is complete for the first time
        self.synced = asyncio.Event()

    def listed(self, version: int, known: int) -> None:
        """A consistent list of that version. known: `newest` as of before it was requested."""
        if version < known:
            self.newest = version
            self.restores += 1
        self.newest = max(self.newest, version)

    def waits_for(self) -> tuple[str, ...]:
        kinds = zip(self._labels, self.stores.values(), strict=True)
        return tuple(f"the list of {kind} is not complete" for kind, store in kinds if not store.is_complete)

    @property
    def is_complete(self) -> bool:
        """Whether every list is complete, so that absence means something."""
        return all(store.is_complete for store in self.stores.values())

    def knows(self, node: str) -> bool:
        return any(store.is_about(node) for store in self.stores.values())

    def names_of_nodes(self) -> frozenset[str]:
        return frozenset().union(*(store.nodes() for store in self.stores.values()))


class Cache(Stores):
    def __init__(self) -> None:
        self.nodes: Store[str, NodeRecord] = Store()
        self.node_devices: Store[str, NodeDeviceRecord] = Store(NODE_DEVICE_BOUNDS)
        self.pod_devices: Store[tuple[str, str], PodDeviceRecord] = Store()
        stores: Mapping[str, Store[Any, Any]] = {
            "nodes": self.nodes,
            names.NODE_DEVICES: self.node_devices,
            names.POD_DEVICES: self.pod_devices,
        }
        super().__init__(stores, ("Nodes", "NodeDevices", "PodDevices"))
