"""What the extender knows of the cluster: NodeDevices and bound pods. Every change goes to the fleet, by a watch or a list."""

import math
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from nodedevice_api import names

from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.informers.memory_bounds import MOST_BYTES_OF_NODE, Bounds
from nodedevice_operator.informers.store import Record, Store, Stores
from nodedevice_operator.kube.client import CORE, OWN
from nodedevice_operator.kube.lists import Kind
from nodedevice_operator.objects.bound_pod import BoundPod, BoundPodSchema, bound_pod
from nodedevice_operator.objects.node_parts import NodeParts, node_parts
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Record)

_BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
BOUND_PODS: Final[Kind[BoundPod]] = Kind("pods", CORE, BoundPodSchema, bound_pod, selector=_BOUND)
NODE_PARTS: Final[Kind[NodeParts]] = Kind(names.NODE_DEVICES, OWN, NodeDeviceSchema, node_parts)
KINDS: Final = (BOUND_PODS, NODE_PARTS)
# For one node: each change of a pod there goes through all its NodeDevices.
_BOUNDS: Final[Bounds[NodeParts]] = Bounds(NodeParts.without_lists, most_bytes=MOST_BYTES_OF_NODE // 4)


class _Observed(Store[K, R]):
    """A store that reports stored and removed records, from watches and lists."""

    def __init__(
        self, stored: Callable[[R], None], removed: Callable[[R], None], bounds: Bounds[Any] | None = None
    ) -> None:
        super().__init__(bounds)
        self._stored = stored
        self._removed = removed

    def put(self, record: R) -> bool:
        before = self.by_key.get(record.key)
        is_new = super().put(record)
        kept = self.by_key.get(record.key)
        if before is not None and kept is not None and before.uid != record.uid == kept.uid:
            self._removed(before)
        if is_new and kept is not None:
            self._stored(kept)
        return is_new

    def on_reduced(self, record: R) -> None:
        self._stored(record)

    def remove(self, key: K, uid: str, version: float = math.inf) -> bool:
        before = self.by_key.get(key)
        was_known = super().remove(key, uid, version)
        if before is not None and before.uid == uid:
            self._removed(before)
        return was_known


class FleetStores(Stores):
    def __init__(self, fleet: Fleet, seen: Callable[[str], None]) -> None:
        """seen: called with the UID of each pod that is shown on a node, or gone from there."""
        self._fleet = fleet
        self._seen = seen
        super().__init__(
            {
                BOUND_PODS.name: _Observed(self._pod_stored, self._pod_removed),
                NODE_PARTS.name: _Observed(self._node_stored, self._node_removed, _BOUNDS),
            },
            ("bound pods", "NodeDevices"),
        )

    def _pod_stored(self, pod: BoundPod) -> None:
        self._seen(pod.uid)
        self._fleet.pod_changed(pod, time.monotonic())

    def _pod_removed(self, pod: BoundPod) -> None:
        self._seen(pod.uid)
        self._fleet.pod_gone(pod.uid, time.monotonic())

    def _node_stored(self, parts: NodeParts) -> None:
        self._fleet.node_changed(parts, time.monotonic())

    def _node_removed(self, parts: NodeParts) -> None:
        self._fleet.node_gone(parts.key, time.monotonic())
