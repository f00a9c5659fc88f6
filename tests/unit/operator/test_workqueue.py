"""Which nodes are reconciled, how often, and what happens when a reconcile fails."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from nodedevice_kube.api_errors import Unavailable
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.reconciles import Reconciles
from tests.unit.operator.reconciles import reconciles as reconciles

# what is not retried at once is retried too late
pytestmark = virtual_time


@pytest.fixture
async def queue(reconciles: Reconciles) -> AsyncIterator[WorkQueue]:
    made = WorkQueue(Metrics())
    async with running(*(made.work(reconciles) for _ in range(3))):
        yield made


async def test_several_enqueues_are_one_reconcile_and_the_earliest_delay_counts(
    reconciles: Reconciles, queue: WorkQueue
) -> None:
    for seconds in (1000, 0, 1000):
        queue.enqueue("a")
        queue.enqueue_after("c", seconds)
    queue.enqueue("b")
    await reconciles.until(3)
    assert reconciles.seen == ["a", "b", "c"]


async def test_an_enqueue_during_a_reconcile_causes_another(reconciles: Reconciles, queue: WorkQueue) -> None:
    reconciles.gate.clear()
    queue.enqueue("a")
    await reconciles.until(1)
    assert not queue.has_changed_since("a")
    queue.enqueue("a")
    queue.enqueue("a")
    assert queue.has_changed_since("a")
    reconciles.gate.set()
    await reconciles.until(2)
    assert reconciles.seen == ["a", "a"]
    assert not queue.has_changed_since("a")


@pytest.mark.parametrize("failure", [Unavailable("patch", "nodes/status", "later", 503), ValueError("a defect")])
async def test_a_failed_reconcile_is_retried_and_counted(reconciles: Reconciles, failure: Exception) -> None:
    metrics = Metrics()
    queue = WorkQueue(metrics)
    failing: list[float | None] = []

    async def fail_twice(_: str) -> float | None:
        failing.append(metrics.registry.get_sample_value("nodedevice_operator_failing_nodes"))
        if len(reconciles.seen) <= 2:
            raise failure
        return None

    reconciles.answer = fail_twice
    async with running(queue.work(reconciles)):
        queue.enqueue("a")
        await reconciles.until(3)
        assert metrics.registry.get_sample_value("nodedevice_operator_reconcile_failures_total") == 2
    assert failing == [0, 1, 1]


async def test_retries_are_later_each_time_and_as_late_as_the_api_server_asks(
    reconciles: Reconciles, queue: WorkQueue
) -> None:
    times: list[float] = []

    async def refuse(_: str) -> float | None:
        times.append(asyncio.get_running_loop().time())
        error = Unavailable("patch", "nodes/status", "slow down", 429, retry_after_seconds=7.0)
        raise error if len(times) == 1 else Unavailable("patch", "nodes/status", "later", 503)

    reconciles.answer = refuse
    queue.enqueue("a")
    await asyncio.sleep(300)
    delays = [later - earlier for earlier, later in pairwise(times)]
    assert delays[:4] == [pytest.approx(seconds, rel=0.21) for seconds in (7.0, 0.1, 0.2, 0.4)]
    assert delays[-2:] == [pytest.approx(30.0, rel=0.21)] * 2


async def test_few_deferred_nodes_are_reconciled_beside_urgent_ones(reconciles: Reconciles) -> None:
    queue = WorkQueue(Metrics())
    ends = {kind: asyncio.Event() for kind in ("urgent", "patient")}

    async def wait(node: str) -> float | None:
        await ends[node.partition("-")[0]].wait()
        return None

    reconciles.answer = wait
    async with running(*(queue.work(reconciles) for _ in range(12))):
        queue.enqueue("urgent-1")
        await reconciles.until(1)
        assert not queue.is_crowded
        queue.enqueue("urgent-2")
        await reconciles.until(2)
        assert queue.is_crowded
        for number in range(8):
            queue.defer(f"patient-{number}")
        await reconciles.until(4)
        queue.enqueue("urgent-3")
        await reconciles.until(5)
        assert sorted(reconciles.running) == ["patient-0", "patient-1", "urgent-1", "urgent-2", "urgent-3"]
        ends["urgent"].set()
        await reconciles.until(9)
        await asyncio.sleep(1)
        # the others stay free
        assert sorted(reconciles.running) == [f"patient-{number}" for number in range(6)]
        ends["patient"].set()


async def test_a_deferred_node_gets_its_turn_while_urgent_ones_keep_coming(reconciles: Reconciles) -> None:
    queue = WorkQueue(Metrics())

    async def rush(node: str) -> float | None:
        await asyncio.sleep(0)
        if node == "patient":
            return 0 if reconciles.seen.count(node) == 1 else None
        queue.enqueue(node)
        return None

    reconciles.answer = rush
    queue.enqueue("patient")
    queue.enqueue("busy")
    async with running(queue.work(reconciles)):
        await reconciles.until(30)
    assert reconciles.seen == ["patient", *["busy"] * 6, "patient", *["busy"] * 22]


async def test_a_deferred_node_that_is_enqueued_is_reconciled_once_and_soon(reconciles: Reconciles) -> None:
    queue = WorkQueue(Metrics())
    for node in ("a", "b"):
        queue.defer(node)
    queue.enqueue("b")
    assert queue.is_crowded
    async with running(queue.work(reconciles)):
        await asyncio.sleep(1)
    assert reconciles.seen == ["b", "a"]
    assert not queue.is_crowded


async def test_a_changed_node_goes_before_a_resync_of_all(reconciles: Reconciles) -> None:
    queue = WorkQueue(Metrics())
    queue.defer("z")
    queue.enqueue("y")
    queue.restart("abcyz", 0.0)
    queue.enqueue("c")
    assert queue.is_crowded

    async def change_meanwhile(node: str) -> float | None:
        if node == "a" and reconciles.seen.count("a") == 1:
            queue.enqueue("b")
            queue.enqueue("z")
            queue.restart("abz", 0.0)
        return None

    reconciles.answer = change_meanwhile
    async with running(queue.work(reconciles)):
        await reconciles.until(6)
    assert reconciles.seen == ["y", "c", "a", "b", "z", "a"]
    assert not queue.is_crowded, "each node is in one queue"


async def test_reconciles_with_nothing_to_do_yield_to_others(reconciles: Reconciles, queue: WorkQueue) -> None:
    """Otherwise changes during a resync of thousands of nodes would be seen only after it."""
    queue.restart([f"node-{number}" for number in range(1000)], 0.0)
    await reconciles.until(1)
    queue.enqueue("changed")
    await reconciles.until(1001)
    assert reconciles.seen.index("changed") < 500


async def test_when_an_outage_ends_failed_nodes_are_retried_at_once(reconciles: Reconciles, queue: WorkQueue) -> None:
    async def fail_once(node: str) -> float | None:
        if reconciles.seen.count(node) == 1:
            # later than this test may take
            raise Unavailable("patch", "nodes/status", "later", 503, retry_after_seconds=1000.0)
        return None

    reconciles.answer = fail_once
    queue.enqueue("a")
    queue.enqueue("b")
    await reconciles.until(2)
    queue.retry_now()
    await reconciles.until(4)
    queue.retry_now()
    queue.enqueue("c")
    await reconciles.until(5)
    assert reconciles.seen == ["a", "b", "a", "b", "c"]


class Heavy:
    """Three workers. `mad` has thousands of objects, which change all the time."""

    def __init__(self, reconciles: Reconciles) -> None:
        self.reconciles = reconciles
        self.weights = {"mad": 2000, "big": 256, "usual": 32}
        self.queue = WorkQueue(Metrics(), weight=lambda node: self.weights.get(node, 0))

    async def reconciled(self, times: int, seconds: float, node: str = "mad") -> None:
        """Enqueued, and so many seconds later it has been reconciled so often in all."""
        self.queue.enqueue(node)
        await asyncio.sleep(seconds)
        assert self.reconciles.seen.count(node) == times


@pytest.fixture
async def heavy(reconciles: Reconciles) -> AsyncIterator[Heavy]:
    made = Heavy(reconciles)
    async with running(*(made.queue.work(reconciles) for _ in range(3))):
        yield made


class TestHeavyNodes:
    @pytest.mark.parametrize(("node", "most"), [("mad", 6), ("big", 44), ("usual", 1000)])
    async def test_one_that_changes_without_end_is_reconciled_as_often_as_it_can_pay_for(
        self, heavy: Heavy, node: str, most: int
    ) -> None:
        for _ in range(1000):
            heavy.queue.enqueue(node)
            heavy.queue.enqueue("other")
            await asyncio.sleep(0.01)
        count = heavy.reconciles.seen.count(node)
        assert most * 0.9 - 1 <= count <= most
        assert heavy.reconciles.seen.count("other") == 1000

    @pytest.mark.parametrize(("weight", "seconds"), [(2000, 1.0), (20_000, 9.0)], ids=["its rest", "the longest"])
    async def test_its_last_state_arrives(self, heavy: Heavy, weight: int, seconds: float) -> None:
        heavy.weights["mad"] = weight
        await heavy.reconciled(1, 0.0001)
        await heavy.reconciled(1, seconds - 0.1)
        await asyncio.sleep(0.2)
        assert heavy.reconciles.seen == ["mad", "mad"]

    async def test_the_first_changes_after_a_pause_are_not_delayed(self, heavy: Heavy) -> None:
        for times in (1, 2, 3, 4):
            await heavy.reconciled(times, 0.001, "big")
        await heavy.reconciled(4, 0.01, "big")
        await asyncio.sleep(2.0)
        for times in (6, 7, 8):
            await heavy.reconciled(times, 0.001, "big")

    async def test_one_that_comes_as_its_rest_ends_is_reconciled_at_once(self, heavy: Heavy) -> None:
        """A timer may fire a little too soon, and shall not set another one."""
        await heavy.reconciled(1, 0.9995)
        await heavy.reconciled(2, 0.0001)

    async def test_deferred_work_and_a_node_whose_objects_are_gone_need_no_rest(self, heavy: Heavy) -> None:
        """A reconcile that wrote the capacity alone has the rest to do."""

        async def deferred_once(_: str) -> float | None:
            if len(heavy.reconciles.seen) == 1:
                return 0.0
            heavy.weights["mad"] = 32
            return None

        heavy.reconciles.answer = deferred_once
        await heavy.reconciled(2, 0.1)
        await heavy.reconciled(3, 0.1)

    async def test_rests_do_not_add_up_in_a_row_of_deferred_reconciles(self, heavy: Heavy) -> None:
        """They do not wait for the node's rest."""

        async def deferred_often(_: str) -> float | None:
            return 0.0 if len(heavy.reconciles.seen) < 20 else None

        heavy.reconciles.answer = deferred_often
        await heavy.reconciled(20, 0.001)
        await heavy.reconciled(20, 1.9)
        await asyncio.sleep(0.2)
        assert heavy.reconciles.seen.count("mad") == 21

    async def test_a_node_that_is_gone_leaves_no_rest_to_the_next_of_its_name(self, heavy: Heavy) -> None:
        for times in (1, 2):
            await heavy.reconciled(times, 0.1)
            heavy.queue.discard("mad")
