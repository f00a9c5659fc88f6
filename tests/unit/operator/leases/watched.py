"""An AgentMonitor around a model of the cluster, for the tests beside this; its fixture is in conftest.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.observability.events import Event
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingQueue, running


async def next_poll(monitor: AgentMonitor) -> None:
    """Waits until the running monitor has listed the Leases once more."""
    listed = asyncio.Event()
    monitor.on_poll = lambda _: listed.set()
    await listed.wait()


@dataclass
class Watched:
    """The cache is synced, with a NodeDevice on each node."""

    cluster: ClusterModel
    cache: Cache
    queue: RecordingQueue
    metrics: Metrics
    posted: list[Event]
    monitor: AgentMonitor

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
