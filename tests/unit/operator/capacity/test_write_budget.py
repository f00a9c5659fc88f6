"""How often one Node is written, whatever its NodeDevices do; and what of a delay is ours, from a change to the Node."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_kube.api_errors import Conflict, Unreachable
from nodedevice_operator.capacity.reconciler import (
    NODE_WRITES_AT_ONCE,
    NODE_WRITES_PER_SECOND,
    CapacityMemory,
    CapacityOutcome,
    CapacityReconciler,
)
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_liveness import ALIVE
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import NoRequiredPlugins, RecordingRecorder
from tests.fakes.operator.operator_model import GPU, node_device

NODE = "node-a"


class OneNode:
    """Capacity work on one Node, at times that are given."""

    def __init__(self, cluster: ClusterModel | None = None) -> None:
        self.now = 100.0
        self.cluster, self.cache, self.metrics = cluster or ClusterModel(), Cache(), Metrics()
        self.cache.nodes.put(self.cluster.node_record())
        collaborators = RecordingRecorder(), self.metrics, NoRequiredPlugins()
        self.work = CapacityReconciler(self.cache, self.cluster, *collaborators, lambda: self.now)
        self.memory = CapacityMemory()
        self._version = 1

    def receive(self, available: int, allocated: int = 0) -> None:
        """Its NodeDevice has so many devices."""
        self._version += 1
        record = node_device(available=available, allocated=allocated, resource_version=self._version)
        self.cache.node_devices.put(record)
        self.work.on_update(NODE, None, record)

    async def changes(self, available: int) -> CapacityOutcome:
        """The same, and the Node is reconciled."""
        self.receive(available)
        return await self.reconcile()

    async def reconcile(self) -> CapacityOutcome:
        return await self.work.reconcile(NODE, self.memory, ALIVE)

    @property
    def shown(self) -> int | None:
        node = self.cache.nodes.get(NODE)
        return node.resources[GPU].capacity if node is not None else None

    @property
    def writes(self) -> int:
        return len(self.cluster.writes)

    @property
    def delays(self) -> tuple[float | None, float | None]:
        """From a change to the Node: how many, and their sum in seconds."""
        name, value = "nodedevice_operator_change_to_node_seconds", self.metrics.registry.get_sample_value
        return value(f"{name}_count"), value(f"{name}_sum")


async def test_twenty_at_once_and_five_a_second() -> None:
    node = OneNode()
    for number in range(50):
        outcome = await node.changes(number % 8)
    assert node.writes == NODE_WRITES_AT_ONCE
    assert (outcome.is_late, outcome.has_written) == (True, False)
    assert outcome.due_at is not None
    for number in range(1000):
        node.now += 0.01
        await node.changes(number % 8)
    assert node.writes == pytest.approx(NODE_WRITES_AT_ONCE + 10 * NODE_WRITES_PER_SECOND, abs=1)


async def test_the_last_state_arrives_when_the_budget_allows_it() -> None:
    node = OneNode()
    for number in range(1, 50):
        outcome = await node.changes(number)
    assert node.shown != 49
    # what is stored of the resource holds until then
    assert dict(outcome.statuses) == {GPU: None}
    assert outcome.due_at is not None
    node.now = outcome.due_at + 1e-6
    outcome = await node.reconcile()
    assert (outcome.is_late, outcome.has_written, node.shown) == (False, True, 49)
    # the delay is part of what the metric counts
    assert node.delays[1] == pytest.approx(node.now - 100.0)


async def test_a_loss_does_not_wait_for_the_gains_before_it() -> None:
    node = OneNode()
    for number in range(1, 50):
        outcome = await node.changes(number)
    assert outcome.is_late
    outcome = await node.changes(0)
    assert (outcome.has_written, node.shown) == (True, 0)


class ChangesWithEachWrite(ClusterModel):
    """Until it is not allowed to any more."""

    bench: OneNode
    is_changing = True

    async def apply_capacity(self, *numbers: Any, force: bool) -> NodeRecord:
        written = await super().apply_capacity(*numbers, force=force)
        if self.is_changing:
            count = len(self.writes)
            self.bench.cache.node_devices.put(node_device(available=count + 1, resource_version=count + 10))
        return written


async def test_a_node_that_changes_with_each_write_is_tried_later() -> None:
    cluster = ChangesWithEachWrite()
    node = cluster.bench = OneNode(cluster)
    with pytest.raises(Conflict, match=r"^patch nodes/status: the Node changes faster than it is written$"):
        await node.changes(1)
    assert node.writes == 5
    cluster.is_changing = False
    await node.reconcile()
    assert node.shown == 6


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.001, 0.1, 1.0, 30.0]), st.integers(0, 8)), max_size=80))
async def test_never_more_than_the_budget_and_never_left_behind(changes: list[tuple[float, int]]) -> None:
    node = OneNode()
    began = node.now
    for pause, available in changes:
        node.now += pause
        outcome = await node.changes(available)
        assert node.writes <= NODE_WRITES_AT_ONCE + (node.now - began) * NODE_WRITES_PER_SECOND + 1e-6
        assert outcome.is_late == (node.shown != available)
        assert outcome.due_at is not None or not outcome.is_late


async def test_a_change_that_changes_nothing_on_the_node() -> None:
    node = OneNode()
    node.receive(available=3)
    await node.reconcile()
    node.now += 5
    node.receive(available=2, allocated=1)
    await node.reconcile()
    assert node.delays == (1, 0)
    # and it does not make the next one reconcile late
    node.now += 5
    node.receive(available=1)
    await node.reconcile()
    assert node.delays == (2, 0)


async def test_a_delay_counts_from_the_first_change_also_over_a_failure() -> None:
    node = OneNode()
    node.receive(available=3)
    node.now += 2
    node.receive(available=4)
    node.cluster.failures["apply_capacity"] = [Unreachable("patch", "nodes/status", "gone")]
    with pytest.raises(Unreachable):
        await node.reconcile()
    assert node.delays == (0, 0)
    node.now += 5
    await node.reconcile()
    assert node.delays == (1, 7)
    # what changed while another operator led is not our delay
    node.receive(available=5)
    node.now += 600
    node.work.forget_changes()
    await node.reconcile()
    assert (node.shown, node.delays) == (5, (1, 7))
