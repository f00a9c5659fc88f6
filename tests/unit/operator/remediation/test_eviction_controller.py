"""Pods are read before they are evicted, refusals are reported once, and nothing is believed of a pod that runs elsewhere."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_common import tasks
from nodedevice_kube.api_errors import NotFound, NotLeading, Unavailable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.observability.events import WARNING, Event, EventReason, about_pod
from nodedevice_operator.remediation.eviction_controller import EvictionController

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingRecorder, open_fence, running
from tests.unit.operator.remediation.test_eviction_policy import EVICT, held

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
    why = "evicted from node-a: gpu-0 of example.com/gpu unhealthy"
    assert bench.reported == [Event(about_pod("default", "pod-a", "uid-a"), WARNING, EventReason.POD_EVICTED, why)]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(PodRecord("uid-b", "node-a"), id="another pod of that name"),
        pytest.param(PodRecord("uid-a", "node-b"), id="runs elsewhere"),
        pytest.param(PodRecord("uid-a", "node-a", True), id="is ending"),
        pytest.param(PodRecord("uid-a", "node-a", annotations={"kubernetes.io/config.mirror": "h"}), id="a mirror"),
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
    assert (bench.cluster.writes, bench.reported) == ([], [])


async def test_a_pod_that_goes_before_its_eviction_is_no_failure() -> None:
    bench = Bench()
    bench.cluster.failures["evict_pod"] = [NotFound("post", "pods/eviction", "gone", 404)]
    await bench.pass_seconds(600)
    assert (bench.cluster.writes, bench.reported) == ([], [])


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


def also_of(bench: Bench, name: str) -> None:
    """Another pod that holds the broken device, and comes after the first."""
    [found] = bench.work.cache.node_devices.values()
    held_too = replace(found.allocations[0], name=name, pod_uid=f"uid-{name}")
    newer = replace(found, resource_version=found.resource_version + 1, allocations=(*found.allocations, held_too))
    bench.work.cache.node_devices.put(newer)
    bench.cluster.pods["default", name] = PodRecord(f"uid-{name}", "node-a")


async def test_a_pod_that_fails_in_a_way_of_its_own_delays_no_other_and_is_named() -> None:
    bench = Bench()
    also_of(bench, "pod-b")
    bench.cluster.failures["read_pod"] = [ValueError("odd")]  # type: ignore[list-item]  # not an error of the API
    await bench.pass_seconds(31)
    assert bench.cluster.writes == ["evict default/pod-b uid-pod-b"]
    assert tasks.problems() == ("evictions default/pod-a fails and is tried again: odd",)


async def test_after_the_lead_no_pod_is_evicted_and_nothing_has_failed() -> None:
    bench = Bench()
    also_of(bench, "pod-b")
    bench.cluster.failures["evict_pod"] = [NotLeading("post", "pods/eviction", "another operator leads")]
    await bench.pass_seconds(31)
    assert bench.cluster.writes == []
    assert tasks.problems() == ()
    await bench.pass_seconds(1)
    assert bench.cluster.writes == ["evict default/pod-a uid-a", "evict default/pod-b uid-pod-b"]


async def test_a_nodedevice_that_somebody_made_by_hand_evicts_nobody() -> None:
    bench = Bench()
    [found] = bench.work.cache.node_devices.values()
    bench.work.cache.node_devices.remove(found.key, found.uid)
    bench.work.cache.node_devices.put(replace(found, name="by-hand", uid="uid-by-hand"))
    await bench.pass_seconds(600)
    assert (bench.cluster.writes, bench.reported) == ([], [])
