"""An AgentMonitor of some nodes around a model of the cluster, by the clock of the loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.objects.nodedevice import StoredCondition
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingQueue, RecordingRecorder, running
from tests.fakes.operator.operator_model import node_device


async def next_poll(monitor: AgentMonitor) -> None:
    """Waits until the running monitor has listed the Leases once more."""
    listed = asyncio.Event()
    monitor.on_poll = lambda _: listed.set()
    await listed.wait()


class Watched:
    """The cache is synced, with a NodeDevice on each node. reported: its conditions of the agent that are stored."""

    def __init__(self, *nodes: str, reported: dict[str, StoredCondition] | None = None) -> None:
        self.cluster, self.cache, self.queue, self.metrics = ClusterModel(), Cache(), RecordingQueue(), Metrics()
        for name in nodes:
            record = node_device(node=name, uid=f"uid-of-{name}")
            self.cache.node_devices.put(replace(record, conditions={**record.conditions, **(reported or {})}))
        self.cache.synced.set()
        recorder, clock = RecordingRecorder(), asyncio.get_running_loop().time
        self.posted = recorder.posted
        self.monitor = AgentMonitor(self.cluster, self.cache, self.queue, self.metrics, recorder, clock=clock)

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """Runs the monitor; the block begins after the first poll."""
        async with running(self.monitor.work()):
            await self.next_poll()
            yield

    async def next_poll(self) -> None:
        await next_poll(self.monitor)

    def agents(self, state: str) -> float:
        value = self.metrics.registry.get_sample_value("nodedevice_operator_agents", {"state": state})
        assert value is not None
        return value
