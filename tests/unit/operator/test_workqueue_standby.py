"""The work queue of an operator that does not lead, and what is reconciled first when it does."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.reconciles import Reconciles
from tests.unit.operator.reconciles import reconciles as reconciles

# what is not retried at once is retried too late
pytestmark = virtual_time


class TestWithoutTheLead:
    """While the fence is closed nothing is handed out; what another operator did not do is done first."""

    @pytest.fixture
    def now(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def fence(self, now: list[float]) -> WriteFence:
        return WriteFence(lambda: now[0])

    @pytest.fixture
    def metrics(self) -> Metrics:
        return Metrics()

    @pytest.fixture
    async def queue(self, reconciles: Reconciles, fence: WriteFence, metrics: Metrics) -> AsyncIterator[WorkQueue]:
        made = WorkQueue(metrics, fence)
        async with running(made.work(reconciles)):
            yield made

    @pytest.mark.parametrize("resync", [0, 900, 5000])
    async def test_after_a_lapse_what_changed_comes_before_the_rest_of_a_resync(
        self, reconciles: Reconciles, queue: WorkQueue, fence: WriteFence, resync: int
    ) -> None:
        queue.restart([f"node-{number}" for number in range(resync)], 0.0)
        flips = [f"flip-{number}" for number in range(50)]
        for node in flips:
            queue.enqueue(node)
        await asyncio.sleep(1)
        assert reconciles.seen == []
        fence.open_for_good()
        queue.resume()
        await reconciles.until(50 + resync)
        assert reconciles.seen == [*flips, *(f"node-{number}" for number in range(resync))]

    async def test_a_lapse_in_the_middle_costs_no_place(
        self, reconciles: Reconciles, queue: WorkQueue, fence: WriteFence
    ) -> None:
        async def lapse(node: str) -> float | None:
            if node == "c":
                fence.close()
            return 0 if node == "a" and reconciles.seen.count("a") == 1 else None

        reconciles.answer = lapse
        fence.open_for_good()
        queue.restart("abcde", 0.0)
        await reconciles.until(3)
        await asyncio.sleep(1)
        assert reconciles.seen == ["a", "b", "c"]
        queue.enqueue("e")
        fence.open_for_good()
        queue.resume()
        await reconciles.until(6)
        assert reconciles.seen[3:] == ["e", "d", "a"]

    async def test_after_another_led_what_changed_since_is_first_and_the_rest_follows(
        self, reconciles: Reconciles, queue: WorkQueue, fence: WriteFence, now: list[float]
    ) -> None:
        for moment, node in enumerate(("a", "b", "c", "gone", "a")):
            now[0] = float(moment)
            queue.enqueue(node)
        queue.defer("d")
        fence.open_for_good()
        queue.restart("abcde", 2.0)
        await reconciles.until(5)
        await asyncio.sleep(1)
        assert reconciles.seen == ["a", "c", "b", "d", "e"]

    async def test_one_that_is_being_reconciled_for_the_lead_before_is_reconciled_again(
        self, reconciles: Reconciles, queue: WorkQueue, fence: WriteFence
    ) -> None:
        fence.open_for_good()
        reconciles.gate.clear()
        queue.enqueue("a")
        await reconciles.until(1)
        queue.restart("a", 0.0)
        reconciles.gate.set()
        await reconciles.until(2)
        assert reconciles.seen == ["a", "a"]

    async def test_a_standby_counts_no_node_as_waiting_for_it(
        self, queue: WorkQueue, fence: WriteFence, metrics: Metrics
    ) -> None:
        name = "nodedevice_operator_waiting_nodes"
        queue.restart("wxyz", 0.0)
        queue.enqueue("a")
        assert metrics.registry.get_sample_value(name) == 0
        queue.defer("b")
        queue.defer("c")
        fence.open_for_good()
        assert metrics.registry.get_sample_value(name) == 7

    async def test_what_is_discarded_is_in_no_queue(
        self, reconciles: Reconciles, queue: WorkQueue, fence: WriteFence
    ) -> None:
        queue.restart("abx", 0.0)
        queue.enqueue("a")
        queue.defer("c")
        for node in "abcy":
            queue.discard(node)
        fence.open_for_good()
        queue.resume()
        await reconciles.until(1)
        await asyncio.sleep(1)
        assert reconciles.seen == ["x"]
