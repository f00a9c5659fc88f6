"""The work queue of an operator that does not lead, and what is reconciled first when it does.

While the fence is closed nothing is handed out; what another operator did not do is done first.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nodedevice_kube.api_errors import NotLeading
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.reconciles import Reconciles

# what is not retried at once is retried too late
pytestmark = virtual_time


class Standby:
    """A work queue behind a closed fence, and what its one worker reconciles."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fence = WriteFence(lambda: self.now)
        self.metrics, self.reconciles = Metrics(), Reconciles()
        self.queue = WorkQueue(self.metrics, self.fence)

    def lead(self) -> None:
        """The lead comes back, and no other operator had it."""
        self.fence.open_for_good()
        self.queue.resume()

    async def seen(self, count: int) -> list[str]:
        """The nodes that were reconciled, once there are so many, and a second later."""
        await self.reconciles.until(count)
        await asyncio.sleep(1)
        return self.reconciles.seen


@pytest.fixture
async def standby() -> AsyncIterator[Standby]:
    made = Standby()
    async with running(made.queue.work(made.reconciles)):
        yield made


@pytest.mark.parametrize("resync", [0, 900, 5000])
async def test_after_a_lapse_what_changed_comes_before_the_rest_of_a_resync(standby: Standby, resync: int) -> None:
    standby.queue.restart([f"node-{number}" for number in range(resync)], 0.0)
    flips = [f"flip-{number}" for number in range(50)]
    for node in flips:
        standby.queue.enqueue(node)
    assert await standby.seen(0) == []
    standby.lead()
    assert await standby.seen(50 + resync) == [*flips, *(f"node-{number}" for number in range(resync))]


async def test_a_lapse_in_the_middle_costs_no_place(standby: Standby) -> None:
    async def lapse(node: str) -> float | None:
        if node == "c":
            standby.fence.close()
        return 0 if node == "a" and standby.reconciles.seen.count("a") == 1 else None

    standby.reconciles.answer = lapse
    standby.fence.open_for_good()
    standby.queue.restart("abcde", 0.0)
    assert await standby.seen(3) == ["a", "b", "c"]
    standby.queue.enqueue("e")
    standby.lead()
    assert await standby.seen(6) == ["a", "b", "c", "e", "d", "a"]


async def test_after_another_led_what_changed_since_is_first_and_the_rest_follows(standby: Standby) -> None:
    for moment, node in enumerate(("a", "b", "c", "gone", "a")):
        standby.now = float(moment)
        standby.queue.enqueue(node)
    standby.queue.defer("d")
    standby.fence.open_for_good()
    standby.queue.restart("abcde", 2.0)
    assert await standby.seen(5) == ["a", "c", "b", "d", "e"]


async def test_one_that_is_being_reconciled_for_the_lead_before_is_reconciled_again(standby: Standby) -> None:
    standby.fence.open_for_good()
    standby.reconciles.gate.clear()
    standby.queue.enqueue("a")
    await standby.reconciles.until(1)
    standby.queue.restart("a", 0.0)
    standby.reconciles.gate.set()
    assert await standby.seen(2) == ["a", "a"]


async def test_a_standby_counts_no_node_as_waiting_or_failing_and_a_leader_those_that_exist(standby: Standby) -> None:
    def counts() -> list[float | None]:
        value = standby.metrics.registry.get_sample_value
        return [value(f"nodedevice_operator_{name}_nodes") for name in ("waiting", "failing")]

    async def fail(node: str) -> float | None:
        if node == "b":
            standby.fence.close()
        raise NotLeading("patch", "nodes/status", "its time as leader is over")

    standby.reconciles.answer = fail
    standby.fence.open_for_good()
    for node in "ab":
        standby.queue.enqueue(node)
    assert await standby.seen(2) == ["a", "b"]
    assert counts() == [0, 0]
    standby.fence.open_for_good()
    assert counts() == [2, 2]
    standby.queue.restart("awxyz", 0.0)
    assert counts() == [5, 1]
    standby.queue.discard("a")
    assert counts() == [4, 0]


async def test_what_is_discarded_is_in_no_queue(standby: Standby) -> None:
    standby.queue.restart("abx", 0.0)
    standby.queue.enqueue("a")
    standby.queue.defer("c")
    standby.queue.enqueue_after("y", 0.5)
    for node in "abcy":
        standby.queue.discard(node)
    standby.lead()
    assert await standby.seen(1) == ["x"]
