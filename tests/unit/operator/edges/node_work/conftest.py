"""The edges that look at a node."""

import pytest
from nodedevice_operator.core.records import LeaseRecord
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.capacity_work import CapacityWork
from nodedevice_operator.edges.lease_watch import LeaseWatch
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.node_work import NodeWork
from nodedevice_operator.edges.pod_device_work import PodDeviceWork

from tests.fakes.cluster_model import ClusterModel
from tests.unit.operator.edges.node_work.look import KeepingRecorder, Look


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
