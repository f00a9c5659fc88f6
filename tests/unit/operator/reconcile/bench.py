"""Edges around a model of the cluster, and one look at its node: what the tests beside this share."""

from dataclasses import dataclass, replace
from typing import Any

from nodedevice_operator.agents.monitor import LeaseWatch
from nodedevice_operator.events.recorder import Recorder
from nodedevice_operator.informers.relist import KINDS, Sync
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import Allocation, NodeDeviceRecord
from nodedevice_operator.objects.pod import PodRecord
from nodedevice_operator.reconcile.node import NodeWork

from tests.fakes.operator.cluster_model import ClusterModel

POD_UID = "pod-uid-a"


class KeepingRecorder(Recorder):
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.posted: list[Any] = []

    def post(self, event: Any) -> None:
        self.posted.append(event)

    def reasons(self) -> list[str]:
        return [event.reason for event in self.posted]


@dataclass
class Look:
    """Edges around one ClusterModel, whose objects the cache is given one by one or by lists."""

    cluster: ClusterModel
    cache: Cache
    recorder: KeepingRecorder
    leases: LeaseWatch
    work: NodeWork
    news: list[str]
    now: list[float]
    crowd: list[str]
    later: list[float]

    async def see(self, *records: NodeDeviceRecord) -> None:
        """Publish NodeDevices, and have every list read again."""
        for record in records:
            version = self.cluster.version = self.cluster.version + 1
            stored = self.cluster.node_devices.get(record.name)
            conditions = {**record.conditions, **(stored.conditions if stored else {})}
            published = replace(record, resource_version=version, conditions=conditions)
            self.cluster.node_devices[record.name] = published
        sync = Sync(self.cache, self.cluster, lambda _: None)
        for kind in KINDS:
            await sync._take_in(kind)

    async def look(self) -> list[str]:
        """Look once; what was written."""
        first = len(self.cluster.writes)
        await self.work.look("node-a")
        return self.cluster.writes[first:]


def held(*device_ids: str, uid: str = POD_UID, name: str = "pod-a", **more: Any) -> Allocation:
    return Allocation("default", name, uid, "main", device_ids, 0, bool(more.get("is_releasing")))


def with_pod(edges: Look, uid: str = POD_UID, node: str = "node-a", name: str = "pod-a") -> None:
    edges.cluster.pods["default", name] = PodRecord(uid, node)
