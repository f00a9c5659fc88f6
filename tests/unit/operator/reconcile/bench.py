"""A NodeReconciler around a model of the cluster, and one reconcile of its node: what the tests beside this share."""

import math
from dataclasses import dataclass, replace
from typing import Any

from nodedevice_operator.capacity.reconciler import CapacityReconciler
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_liveness import LeaseTable
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.nodedevice import AllocationRecord, NodeDeviceRecord
from nodedevice_operator.objects.unwatched import LeaseRecord, PodRecord
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.reconcile.condition_reconciler import ConditionsReconciler
from nodedevice_operator.reconcile.cordon_restorer import CordonReconciler
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceReconciler

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import NoRequiredPlugins, RecordingQueue, RecordingRecorder, open_fence

POD_UID = "pod-uid-a"


@dataclass
class Bench:
    """A NodeReconciler around one ClusterModel, whose objects the cache is given one by one or by lists."""

    cluster: ClusterModel
    cache: Cache
    recorder: RecordingRecorder
    agents: AgentMonitor
    reconciler: NodeReconciler
    queue: RecordingQueue
    fence: WriteFence
    updated: list[str]
    now: list[float]

    async def see(self, *records: NodeDeviceRecord) -> None:
        """Publish NodeDevices, and have every list read again."""
        for record in records:
            version = self.cluster.version = self.cluster.version + 1
            stored = self.cluster.node_devices.get(record.name)
            conditions = {**record.conditions, **(stored.conditions if stored else {})}
            published = replace(record, resource_version=version, conditions=conditions)
            self.cluster.node_devices[record.name] = published
        self.cache.nodes.replace(await self.cluster.list_all(NODES), self.cluster.version)
        self.cache.node_devices.replace(await self.cluster.list_all(NODE_DEVICES), self.cluster.version)
        self.cache.pod_devices.replace(await self.cluster.list_all(POD_DEVICES), self.cluster.version)

    async def settle(self, *records: NodeDeviceRecord) -> None:
        """The same, and reconcile once."""
        await self.see(*records)
        await self.reconcile()

    def restart(self) -> None:
        """Go on as a process that has just started, or leads after another."""
        self.reconciler.take_over(another_wrote=True, nobody_since=math.inf)

    async def silence_agent(self, table: LeaseTable) -> None:
        """Let the agent's Lease run out; what that withdraws at once is the table's to decide."""
        listed = table.updated(self.cluster.leases, 0, frozenset({"node-a"}))
        self.agents.clock = lambda: 61.0
        self.agents._table = replace(listed, listed_at=50.0)
        await self.agents._poll()

    async def reconcile(self) -> list[str]:
        """Reconcile once; return what was written."""
        first = len(self.cluster.writes)
        await self.reconciler.reconcile("node-a")
        return self.cluster.writes[first:]


def held(*device_ids: str, uid: str = POD_UID, name: str = "pod-a", **more: Any) -> AllocationRecord:
    return AllocationRecord("default", name, uid, "main", device_ids, 0, bool(more.get("is_releasing")))


def with_pod(bench: Bench, uid: str = POD_UID, node: str = "node-a", name: str = "pod-a") -> None:
    bench.cluster.pods["default", name] = PodRecord(uid, node)


async def new_bench() -> Bench:
    cluster = ClusterModel(leases={"node-a": LeaseRecord("now", 60)})
    cache, recorder, queue, metrics = Cache(), RecordingRecorder(), RecordingQueue(), Metrics()
    fence, policies = open_fence(), NoRequiredPlugins()
    now = [100.0]
    updated: list[str] = []
    cache.node_devices.on_update(lambda _, __, record: updated.append(record.name if record else ""))
    agents = AgentMonitor(cluster, cache, queue, metrics, recorder)
    await agents._poll()
    reconciler = NodeReconciler(
        cache,
        agents,
        CapacityReconciler(cache, cluster, recorder, metrics, policies, lambda: now[0]),
        PodDeviceReconciler(cache, cluster, recorder),
        ConditionsReconciler(cache, cluster, agents, policies, recorder, lambda: now[0]),
        CordonReconciler(cache, cluster, recorder),
        queue,
        fence,
        lambda: now[0],
    )
    return Bench(cluster, cache, recorder, agents, reconciler, queue, fence, updated, now)
