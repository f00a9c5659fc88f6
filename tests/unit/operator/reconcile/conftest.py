"""A NodeReconciler with its collaborators, around a model of the cluster."""

import pytest
from nodedevice_operator.capacity.reconciler import CapacityReconciler
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.unwatched import LeaseRecord
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.reconcile.condition_reconciler import ConditionsReconciler
from nodedevice_operator.reconcile.cordon_reconciler import CordonReconciler
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceReconciler

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import NoRequiredPlugins, RecordingQueue, RecordingRecorder, open_fence
from tests.unit.operator.reconcile.bench import Bench


@pytest.fixture
async def bench() -> Bench:
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
