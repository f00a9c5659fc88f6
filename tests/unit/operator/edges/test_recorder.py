"""Events are posted, or lost and counted; never in the way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from nodedevice_operator.core.events import NORMAL, Event, about_pod
from nodedevice_operator.core.records import PodRecord
from nodedevice_operator.edges import recorder as module
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.recorder import Recorder
from nodedevice_operator.errors import Conflict, Forbidden, Unreachable

from tests.fakes.cluster_model import ClusterModel


def event(message: str, on_node: str | None = None) -> Event:
    return Event(about_pod("default", "pod-a", "uid-a"), NORMAL, "Test", message, on_node)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def cluster() -> ClusterModel:
    return ClusterModel()


@pytest.fixture
async def recorder(cluster: ClusterModel, metrics: Metrics) -> AsyncIterator[Recorder]:
    made = Recorder(cluster, metrics)
    task = asyncio.create_task(made.work())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def posted(recorder: Recorder, cluster: ClusterModel) -> list[str]:
    """Messages posted before a last one, for which is waited."""
    recorder.post(event("last"))
    async with asyncio.timeout(20):
        while not cluster.events or cluster.events[-1].message != "last":
            await asyncio.sleep(0)
    return [found.message for found in cluster.events[:-1]]


def lost(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("nodedevice_operator_events_lost_total")


async def test_an_outage_is_waited_for_and_a_refusal_is_not(
    recorder: Recorder, cluster: ClusterModel, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "wait_exponential", lambda **_: lambda _: 0.0)
    refused = Forbidden("post", "events", "no", 403)
    arrived = Conflict("post", "events", "already exists", 409)
    away = Unreachable("post", "events", "away")
    cluster.failures["post_event"] = [away, away]
    recorder.post(event("a"))
    assert await posted(recorder, cluster) == ["a"]
    cluster.events.clear()
    cluster.failures["post_event"] = [refused, arrived]
    recorder.post(event("b"))
    recorder.post(event("c"))
    assert await posted(recorder, cluster) == []
    assert lost(metrics) == 1


async def test_what_never_gets_through_is_lost(
    recorder: Recorder, cluster: ClusterModel, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "wait_exponential", lambda **_: lambda _: 0.0)
    cluster.failures["post_event"] = [Unreachable("post", "events", "away")] * 4
    recorder.post(event("a"))
    assert await posted(recorder, cluster) == []
    assert lost(metrics) == 1


@pytest.mark.parametrize(
    ("pod", "is_posted"),
    [
        (PodRecord("uid-a", "node-a"), True),
        (PodRecord("uid-a", "node-b"), False),
        (PodRecord("uid-b", "node-a"), False),
        (None, False),
    ],
)
async def test_an_agent_is_not_believed_which_pods_it_has(
    recorder: Recorder, cluster: ClusterModel, pod: PodRecord | None, is_posted: bool
) -> None:
    if pod is not None:
        cluster.pods["default", "pod-a"] = pod
    recorder.post(event("a", on_node="node-a"))
    assert await posted(recorder, cluster) == (["a"] if is_posted else [])


async def test_the_newest_are_kept_when_there_are_too_many(cluster: ClusterModel, metrics: Metrics) -> None:
    waiting = Recorder(cluster, metrics)
    for number in range(1003):
        waiting.post(event(str(number)))
    assert lost(metrics) == 3
    task = asyncio.create_task(waiting.work())
    waiting.post(event("one more"))
    messages = await posted(waiting, cluster)
    assert messages[0] == "5"  # three, then one each for the two that came since
    task.cancel()
