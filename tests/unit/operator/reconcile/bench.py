"""A NodeReconciler around a model of the cluster, and one reconcile of its node: what the tests beside this share."""

import math
from dataclasses import dataclass, replace

from nodedevice_operator.capacity.reconciler import CapacityReconciler
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.objects.unwatched import LeaseRecord, PodRecord
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.reconcile.condition_reconciler import ConditionsReconciler
from nodedevice_operator.reconcile.cordon_restorer import CordonReconciler
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceReconciler

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import NoRequiredPlugins, RecordingQueue, RecordingRecorder, open_fence, running
from tests.unit.operator.leases.watched import next_poll

# the largest operator takes it from here
from tests.unit.operator.objects.records import held as held


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
    # the clock of the agents' Leases
    polled_at: list[float]

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

    def condition(self, record: NodeDeviceRecord, kind: str) -> StoredCondition:
        """One about the NodeDevice that is stored."""
        return self.cluster.node_devices[record.name].conditions[kind]

    async def poll(self) -> None:
        """Have the agents' Leases listed once."""
        async with running(self.agents.work()):
            await next_poll(self.agents)

    async def silence_agent(self) -> None:
        """Let the agent's Lease run out."""
        for _ in range(3):
            self.polled_at[0] += 30.0
            await self.poll()

    async def reconcile(self) -> list[str]:
        """Reconcile once; return what was written."""
        first = len(self.cluster.writes)
        await self.reconciler.reconcile("node-a")
        return self.cluster.writes[first:]


def with_pod(bench: Bench, name: str = "pod-a", node: str = "node-a") -> None:
    bench.cluster.pods["default", name] = PodRecord(f"uid-{name}", node)


async def new_bench(*, is_polled: bool = True) -> Bench:
    """is_polled: False as after a restart, when the first list of the Leases fails."""
    cluster = ClusterModel(leases={"node-a": LeaseRecord("now", 60)})
    cache, recorder, queue, metrics = Cache(), RecordingRecorder(), RecordingQueue(), Metrics()
    cache.synced.set()
    fence, policies = open_fence(), NoRequiredPlugins()
    now, polled_at = [100.0], [100.0]
    updated: list[str] = []
    cache.node_devices.on_update(lambda _, __, record: updated.append(record.name if record else ""))
    agents = AgentMonitor(cluster, cache, queue, metrics, recorder, clock=lambda: polled_at[0])
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
    bench = Bench(cluster, cache, recorder, agents, reconciler, queue, fence, updated, now, polled_at)
    agents.has_listed = True
    if is_polled:
        await bench.poll()
    return bench
