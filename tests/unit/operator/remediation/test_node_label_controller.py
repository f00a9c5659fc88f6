"""A Node that a policy protects holds up no other, and is not asked for again and again."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, Forbidden
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.node import NodeRecord, TaintAndLabels
from nodedevice_operator.objects.nodedevice import DeviceRecord
from nodedevice_operator.remediation.eviction_controller import EvictionController
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelController, NodeLabelsApi
from nodedevice_operator.remediation.unused_nodedevices import GoneNodeDevices, NodeDevicesApi

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingRecorder, open_fence
from tests.fakes.operator.operator_model import node_device
from tests.fakes.turns import Lines, turns

DENIED = Denied("PATCH", "nodes", "denied request: this Node is not to be touched", 403)
DENIED_BY_POLICY = "an admission policy denies taint or labels of Nodes"


class Nodes(NodeLabelsApi):
    """Nodes that are labelled and tainted, or refuse it; by name, in order, what was asked."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.refusals: dict[str, ApiError] = {}
        self.asked: list[str] = []

    async def label_node(self, node: NodeRecord, labels: Mapping[str, str | None]) -> NodeRecord:
        self._ask(node.name)
        there = {**node.taint_and_labels.labels, **{key: value for key, value in labels.items() if value is not None}}
        return _written(node, replace(node.taint_and_labels, labels=there))

    async def taint_node(self, name: str, uid: str, *, is_tainted: bool) -> NodeRecord:
        self._ask(name)
        node = self._cache.nodes.get(name)
        assert node is not None
        return _written(node, replace(node.taint_and_labels, is_tainted=is_tainted))

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self.refusals:
            raise self.refusals[name]


def _written(node: NodeRecord, marks: TaintAndLabels) -> NodeRecord:
    return replace(node, resource_version=node.resource_version + 1, taint_and_labels=marks)


class Bench:
    """Three Nodes with a broken device each, and a clock that is set by hand."""

    def __init__(self, *, taint: bool = True, labels: bool = False) -> None:
        self.now = 1000.0
        self.cache = Cache()
        self.cluster = Nodes(self.cache)
        for name in ("a", "b", "c"):
            self.cache.nodes.put(NodeRecord(name, f"uid-of-{name}", 1, {}))
            self.publish(name, 1)
        self.work = NodeLabelController(
            self.cache, self.cluster, open_fence(), taint=taint, labels=labels, clock=lambda: self.now
        )

    def publish(self, name: str, version: int, total: int = 1) -> None:
        broken = {"gpu-0": DeviceRecord("Unhealthy", "Xid", False, ())}
        record = node_device(node=name, uid=f"nd-of-{name}", owner_uid=f"uid-of-{name}", total=total)
        self.cache.node_devices.put(replace(record, devices=broken, resource_version=version))

    def tainted(self) -> set[str]:
        return {node.name for node in self.cache.nodes.values() if node.taint_and_labels.is_tainted}

    async def asked_in(self, checks: int) -> list[str]:
        before = len(self.cluster.asked)
        for _ in range(checks):
            self.now += 2
            await self.work.reconcile()
        return self.cluster.asked[before:]


async def test_one_that_a_policy_protects_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.cluster.refusals = {"a": DENIED, "b": DENIED}
    assert await bench.asked_in(3) == ["a", "b", "c"]
    assert bench.tainted() == {"c"}
    [reported] = [record for record in caplog.records if record.message == DENIED_BY_POLICY]
    assert (reported.__dict__["node"], reported.__dict__["nodes"]) == ("a", 2)
    assert reported.__dict__["error"] == DENIED.problem


async def test_it_is_asked_for_again_after_five_minutes_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.cluster.refusals = {"a": DENIED}
    await bench.asked_in(1)
    bench.now += 300
    assert await bench.asked_in(1) == ["a"]
    bench.now += 300
    bench.cluster.refusals.clear()
    assert await bench.asked_in(2) == ["a"]
    assert bench.tainted() == {"a", "b", "c"}
    assert [record.message for record in caplog.records].count(DENIED_BY_POLICY) == 1
    bench.cluster.refusals = {"a": DENIED}
    bench.cache.nodes.put(NodeRecord("a", "uid-of-a", 9, {}))
    await bench.asked_in(1)
    assert [record.message for record in caplog.records].count(DENIED_BY_POLICY) == 2


async def test_something_else_is_asked_for_at_once() -> None:
    bench = Bench(taint=False, labels=True)
    bench.cluster.refusals = {"a": DENIED}
    assert await bench.asked_in(2) == ["a", "b", "c"]
    bench.publish("a", 2, total=2)
    assert await bench.asked_in(2) == ["a"]


async def test_a_role_that_is_missing_ends_the_check() -> None:
    bench = Bench()
    bench.cluster.refusals = {"a": Forbidden("PATCH", "nodes", "no", 403)}
    with pytest.raises(Forbidden):
        await bench.work.reconcile()
    assert bench.cluster.asked == ["a"]


async def test_one_that_somebody_wrote_meanwhile_is_left_for_the_next_check() -> None:
    bench = Bench()
    bench.cluster.refusals = {"a": Conflict("PATCH", "nodes", "the object has been modified", 409)}
    assert await bench.asked_in(1) == ["a", "b", "c"]
    bench.cluster.refusals.clear()
    assert await bench.asked_in(2) == ["a"]


async def test_one_that_is_not_understood_is_not_written() -> None:
    bench = Bench()
    bench.cache.nodes.mark_invalid("b")
    assert await bench.asked_in(1) == ["a", "c"]


async def test_checks_of_a_fleet_with_nothing_to_do_leave_turns_to_others() -> None:
    cache, fence = Cache(), open_fence()
    for number in range(5000):
        cache.nodes.put(NodeRecord(f"node-{number}", f"uid-{number}", 1, {}))
        cache.node_devices.put(node_device(node=f"node-{number}", uid=f"nd-{number}"))
    labels = NodeLabelController(cache, Nodes(cache), fence, taint=True, labels=False)
    evictions = EvictionController(
        cache, ClusterModel(), RecordingRecorder(), {}, fence, delay_seconds=30, per_minute=60
    )
    deletions = GoneNodeDevices(cache, NodeDevicesApi.__new__(NodeDevicesApi), fence)
    for check in (labels, evictions, deletions):
        with turns(Lines()) as found:
            await check.reconcile()
        assert found.count >= 4, check
