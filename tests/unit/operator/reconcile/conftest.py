"""The edges that look at a node."""

import pytest
from nodedevice_operator.agents.monitor import LeaseWatch
from nodedevice_operator.capacity.reconciler import CapacityWork
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.lease import LeaseRecord
from nodedevice_operator.poddevices.reconciler import PodDeviceWork
from nodedevice_operator.reconcile.node import NodeWork

from tests.fakes.operator.cluster_model import ClusterModel
from tests.unit.operator.reconcile.look import KeepingRecorder, Look


@pytest.fixture
async def edges() -> Look:
    cluster = ClusterModel(leases={"node-a": LeaseRecord("now", 60)})
    cache, recorder, metrics = Cache(), KeepingRecorder(), Metrics()
    news: list[str] = []
    now = [100.0]
    crowd: list[str] = []
    later: list[float] = []
    leases = LeaseWatch(cluster, cache, lambda _: None, metrics, recorder.post)
    await leases._look()
    work = NodeWork(
        cache,
        cluster,
        leases,
        CapacityWork(cache, cluster, recorder, metrics, clock=lambda: now[0]),
        PodDeviceWork(cache, cluster, recorder),
        lambda _, record: news.append(record.name),
        lambda: bool(crowd),
        lambda _, seconds: later.append(seconds),
        recorder.post,
        lambda: now[0],
    )
    return Look(cluster, cache, recorder, leases, work, news, now, crowd, later)
