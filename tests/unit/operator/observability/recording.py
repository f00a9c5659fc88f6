"""A recorder by the loop's clock, and Events for it. Its tests run in virtual time."""

import asyncio

from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.aggregates import HEALTHY_AGAIN, UNHEALTHY, DeviceAggregate, NumberAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod, advertised
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import open_fence, running
from tests.fakes.virtual_time import later


def event(message: str, on_node: str | None = None) -> Event:
    return Event(about_pod("default", "pod-a", "uid-a"), NORMAL, "Test", message, on_node)


class Recorder(EventRecorder):
    """A recorder, the cluster that it posts to, and what came of it."""

    def __init__(self, cluster: ClusterModel | None = None, fence: WriteFence | None = None) -> None:
        self.cluster = cluster or ClusterModel()
        self.metrics = Metrics()
        super().__init__(self.cluster, self.metrics, fence or open_fence(), asyncio.get_running_loop().time)

    async def posted(self, seconds: float = 60.0) -> list[str]:
        """All messages posted so far, after it has worked for so long."""
        async with running(self.work()):
            await later(seconds)
        return [found.message for found in self.cluster.events]

    def sums(self) -> list[Event]:
        """The Events that stand for many."""
        return [found for found in self.cluster.events if found.about.kind == "CustomResourceDefinition"]

    def lost(self) -> float | None:
        return self.metrics.registry.get_sample_value("nodedevice_operator_events_lost_total")


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
