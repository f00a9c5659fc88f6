"""Pods are read before they are evicted, refusals are reported once, and nothing is believed of a pod that runs elsewhere."""

import asyncio

import pytest
from nodedevice_common import tasks
from nodedevice_operator.errors import NotFound, NotLeading, Unavailable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.observability.events import EventReason
from nodedevice_operator.remediation.eviction_controller import EvictionController

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingRecorder, open_fence, running
from tests.unit.operator.remediation.test_eviction_policy import EVICT, held

GONE = NotFound("post", "pods/eviction", "gone", 404)
BUDGET = Unavailable("post", "pods/eviction", "Cannot evict pod as it would violate the pod's disruption budget.", 429)


class Bench:
    """An operator's evictions with one node, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cluster = ClusterModel()
        self.cluster.pods["default", "pod-a"] = PodRecord("uid-a", "node-a")
        recorder = RecordingRecorder()
        self.reported = recorder.posted
        cache = Cache()
        cache.node_devices.put(held())
        self.work = EvictionController(
            cache, self.cluster, recorder, EVICT, open_fence(), delay_seconds=30, per_minute=60, clock=lambda: self.now
        )

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            await self.work.reconcile()


async def test_evicted_once_after_the_delay() -> None:
    bench = Bench()
    await bench.pass_seconds(30)
    assert bench.cluster.writes == []
    await bench.pass_seconds(600)
    assert bench.cluster.writes == ["evict default/pod-a uid-a"]
    assert [event.reason for event in bench.reported] == [EventReason.POD_EVICTED]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(PodRecord("uid-b", "node-a"), id="another pod of that name"),
        pytest.param(PodRecord("uid-a", "node-b"), id="runs elsewhere"),
        pytest.param(PodRecord("uid-a", "node-a", True), id="is ending"),
        pytest.param(
            PodRecord("uid-a", "node-a", annotations={"kubernetes.io/config.mirror": "h"}), id="mirrors a static pod"
        ),
        pytest.param(None, id="is gone"),
    ],
)
async def test_never_a_pod_that_is_not_that_one_or_ends_already(pod: PodRecord | None) -> None:
    bench = Bench()
    if pod is None:
        bench.cluster.pods.clear()
    else:
        bench.cluster.pods["default", "pod-a"] = pod
    await bench.pass_seconds(600)
    assert bench.cluster.writes == []
    assert bench.reported == []


async def test_a_budget_is_honoured_and_reported_once() -> None:
    bench = Bench()
    bench.cluster.failures["evict_pod"] = [BUDGET] * 3
    await bench.pass_seconds(60)
    assert bench.cluster.writes == []
    assert [event.reason for event in bench.reported] == [EventReason.EVICTION_REFUSED]
    assert "disruption budget" in bench.reported[0].message
    await bench.pass_seconds(60)
    assert bench.cluster.writes == ["evict default/pod-a uid-a"]
    assert [event.reason for event in bench.reported] == [EventReason.EVICTION_REFUSED, EventReason.POD_EVICTED]


async def test_gone_in_between_is_gone() -> None:
    bench = Bench()
    bench.cluster.failures["evict_pod"] = [GONE]
    await bench.pass_seconds(600)
    assert (bench.cluster.writes, bench.reported) == ([], [])


async def test_a_device_that_was_broken_before_another_led_is_waited_for_again() -> None:
    bench = Bench()
    await bench.pass_seconds(29)
    for store in bench.work.cache.stores.values():
        store.is_complete = True
    bench.work.fence.close()
    async with running(bench.work.work()):
        await asyncio.sleep(0)
    await bench.pass_seconds(29)
    assert bench.cluster.writes == []


async def test_without_the_lead_nothing_is_sent_and_nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_failing", {})
    bench = Bench()
    bench.cluster.failures["evict_pod"] = [NotLeading("post", "pods/eviction", "another operator leads")]
    await bench.pass_seconds(40)
    assert tasks.problems() == ()
    assert bench.cluster.writes == ["evict default/pod-a uid-a"], "in the next round"
