"""A recorder whose clock stands still, Events for it, and a wait until it has posted them."""

import asyncio
from collections.abc import Callable
from itertools import count

from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.aggregates import HEALTHY_AGAIN, UNHEALTHY, DeviceAggregate, NumberAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod, advertised
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import Clock, open_fence


def event(message: str, on_node: str | None = None) -> Event:
    return Event(about_pod("default", "pod-a", "uid-a"), NORMAL, "Test", message, on_node)


_numbers = count()


class Recorder(EventRecorder):
    """A recorder whose clock stands still, the cluster that it posts to, and what came of it."""

    def __init__(
        self,
        cluster: ClusterModel | None = None,
        fence: WriteFence | None = None,
    ) -> None:
        self.cluster = cluster or ClusterModel()
        self.metrics = Metrics()
        super().__init__(self.cluster, self.metrics, fence or open_fence(), Clock())

    async def posted(self) -> list[str]:
        """Messages posted before a last one, for which is waited; without that one, and those of earlier calls."""
        last = f"last {next(_numbers)}"
        self.post(event(last))
        await until(lambda: bool(self.cluster.events) and self.cluster.events[-1].message == last)
        return [found.message for found in self.cluster.events if not found.message.startswith("last ")]

    def lost(self) -> float | None:
        return self.metrics.registry.get_sample_value("nodedevice_operator_events_lost_total")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)


def tallied(reason: str, *device_ids: str, unnamed: int = 0, node: str = "node-a") -> Event:
    is_recovery = reason == "DeviceRecovered"
    why = frozenset[str]() if is_recovery else frozenset({"Xid"})
    ids = frozenset(device_ids)
    became = HEALTHY_AGAIN if is_recovery else UNHEALTHY
    tally = DeviceAggregate("example.com/gpu", node, ids, why, unnamed=unnamed, became=became)
    about = About("nodedevice.io/v1alpha1", "NodeDevice", "", f"{node}.example.com.gpu", node)
    return Event(about, NORMAL if is_recovery else WARNING, reason, tally.sentence(), aggregate=tally)


def advertises(before: int | None, after: int | None, node: str = "node-a") -> Event:
    about = About("nodedevice.io/v1alpha1", "NodeDevice", "", f"{node}.example.com.gpu", node)
    return advertised(about, NumberAggregate("example.com/gpu", node, before, after))
