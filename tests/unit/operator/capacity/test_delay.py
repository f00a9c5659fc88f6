"""From a change that was received of to the Node that shows it: what is counted as a delay of ours, and what is not."""

import pytest
from nodedevice_kube.api_errors import Unreachable
from nodedevice_operator.capacity.reconciler import CapacityMemory, CapacityReconciler
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_liveness import ALIVE
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import NoRequiredPlugins, RecordingRecorder
from tests.fakes.operator.operator_model import node_device

NODE = "node-a"


class Delays:
    """Capacity work on one Node, at times that are given."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cluster, self.cache, self.metrics = ClusterModel(), Cache(), Metrics()
        self.cache.nodes.put(self.cluster.node_record())
        recorder = RecordingRecorder()
        self.work = CapacityReconciler(
            self.cache, self.cluster, recorder, self.metrics, NoRequiredPlugins(), lambda: self.now
        )
        self._version = 1

    def receive(self, available: int, allocated: int = 0) -> None:
        self._version += 1
        record = node_device(available=available, allocated=allocated, resource_version=self._version)
        self.cache.node_devices.put(record)
        self.work.on_update(NODE, None, record)

    async def reconcile(self) -> None:
        await self.work.reconcile(NODE, CapacityMemory(), ALIVE)

    @property
    def observed(self) -> tuple[float | None, float | None]:
        """How many, and their sum in seconds."""
        name, value = "nodedevice_operator_change_to_node_seconds", self.metrics.registry.get_sample_value
        return value(f"{name}_count"), value(f"{name}_sum")


@pytest.fixture
def delays() -> Delays:
    return Delays()


async def test_from_the_first_change_on(delays: Delays) -> None:
    delays.receive(available=3)
    delays.now += 2
    delays.receive(available=4)
    delays.now += 1
    await delays.reconcile()
    assert delays.observed == (1, 3)


async def test_a_change_that_changes_nothing_on_the_node(delays: Delays) -> None:
    delays.receive(available=3)
    await delays.reconcile()
    delays.now += 5
    delays.receive(available=2, allocated=1)
    await delays.reconcile()
    assert delays.observed == (1, 0)
    # and it does not make the next one reconcile late
    delays.now += 5
    delays.receive(available=1)
    await delays.reconcile()
    assert delays.observed == (2, 0)


async def test_a_reconcile_that_nobody_asked_for_is_no_change(delays: Delays) -> None:
    delays.cache.node_devices.put(node_device(available=3))
    await delays.reconcile()
    assert delays.cluster.writes
    assert delays.observed == (0, 0)


async def test_what_fails_is_as_late_as_it_was(delays: Delays) -> None:
    delays.receive(available=3)
    delays.cluster.failures["apply_capacity"] = [Unreachable("patch", "nodes/status", "gone")]
    with pytest.raises(Unreachable):
        await delays.reconcile()
    assert delays.observed == (0, 0)
    delays.now += 7
    await delays.reconcile()
    assert delays.observed == (1, 7)


async def test_what_changed_while_another_led_is_none_of_our_delay(delays: Delays) -> None:
    delays.receive(available=3)
    delays.now += 600
    delays.work.forget_changes()
    await delays.reconcile()
    assert delays.cluster.writes
    assert delays.observed == (0, 0)
