"""An AgentMonitor of some nodes, by the clock of the loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.nodedevice import StoredCondition
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingQueue, RecordingRecorder
from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.leases.watched import Watched


@pytest.fixture
def watched() -> Callable[..., Watched]:
    """Makes one, for these nodes."""

    def make(*nodes: str, reported: dict[str, StoredCondition] | None = None) -> Watched:
        cluster, cache, queue, metrics = ClusterModel(), Cache(), RecordingQueue(), Metrics()
        recorder = RecordingRecorder()
        for name in nodes:
            record = node_device(node=name, uid=f"uid-of-{name}")
            cache.node_devices.put(replace(record, conditions={**record.conditions, **(reported or {})}))
        cache.synced.set()
        clock = asyncio.get_running_loop().time
        monitor = AgentMonitor(cluster, cache, queue, metrics, recorder, clock=clock)
        return Watched(cluster, cache, queue, metrics, recorder.posted, monitor)

    return make
