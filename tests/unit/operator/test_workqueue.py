"""Who is looked at, how often, and what happens when a look fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from nodedevice_operator import workqueue as reconciler
from nodedevice_operator.errors import Unavailable
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.workqueue import Reconciler


class Looks:
    """A look that notes who came, and waits where it is told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.running: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Callable[[str], Awaitable[float | None]] | None = None
        self._changed = asyncio.Condition()

    async def __call__(self, node: str) -> float | None:
        assert node not in self.running, "two looks at one node"
        self.running.add(node)
        self.seen.append(node)
        async with self._changed:
            self._changed.notify_all()
        try:
            await self.gate.wait()
            return await self.answer(node) if self.answer else None
        finally:
            self.running.discard(node)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: len(self.seen) >= count)


@pytest.fixture
async def looks() -> Looks:
    return Looks()


@pytest.fixture
async def queue(looks: Looks) -> AsyncIterator[Reconciler]:
    made = Reconciler(looks, Metrics())
    workers = [asyncio.create_task(made.work()) for _ in range(3)]
    yield made
    for worker in workers:
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker


async def test_several_wishes_are_one_look(looks: Looks, queue: Reconciler) -> None:
    for _ in range(5):
        queue.touch("a")
    queue.touch("b")
    await looks.until(2)
    assert looks.seen == ["a", "b"]


async def test_a_wish_during_a_look_is_another_look_afterwards(looks: Looks, queue: Reconciler) -> None:
    looks.gate.clear()
    queue.touch("a")
    await looks.until(1)
    queue.touch("a")
    queue.touch("a")
    looks.gate.set()
    await looks.until(2)
    assert looks.seen == ["a", "a"]


async def test_nodes_do_not_wait_for_each_other(looks: Looks, queue: Reconciler) -> None:
    looks.gate.clear()
    for node in "abc":
        queue.touch(node)
    await looks.until(3)
    assert looks.running == set("abc")


@pytest.mark.parametrize("failure", [Unavailable("patch", "nodes/status", "later", 503), ValueError("a defect")])
async def test_a_failed_look_is_repeated_and_counted(looks: Looks, failure: Exception) -> None:
    metrics = Metrics()
    queue = Reconciler(looks, metrics)

    async def fail_twice(_: str) -> float | None:
        if len(looks.seen) <= 2:
            raise failure
        return None

    looks.answer = fail_twice
    worker = asyncio.create_task(queue.work())
    queue.touch("a")
    await looks.until(3)
    assert metrics.registry.get_sample_value("nodedevice_operator_reconcile_failures_total") == 2
    worker.cancel()


async def test_retry_after_is_kept_to(looks: Looks, queue: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr(queue, "touch_later", lambda _, seconds: delays.append(seconds))
    monkeypatch.setattr(reconciler, "jittered", lambda seconds, _: seconds)

    async def refuse(_: str) -> float | None:
        error = Unavailable("patch", "nodes/status", "slow down", 429, 7.0)
        raise error if len(looks.seen) == 1 else Unavailable("patch", "nodes/status", "later", 503)

    looks.answer = refuse
    queue.touch("a")
    await looks.until(1)
    for _ in range(20):
        queue.touch("a")
        await looks.until(len(looks.seen) + 1)
    assert delays[0] == 7.0
    assert delays[1:4] == [0.1, 0.2, 0.4]
    assert max(delays) == delays[-1] == 30.0


async def test_the_soonest_wish_for_later_counts(looks: Looks, queue: Reconciler) -> None:
    queue.touch_later("a", 1000)
    queue.touch_later("a", 0)
    queue.touch_later("a", 1000)
    await looks.until(1)

    async def again_at_once(_: str) -> float | None:
        return 0.0 if len(looks.seen) < 4 else None

    looks.answer = again_at_once
    queue.touch("a")
    await looks.until(4)


async def test_what_can_wait_leaves_places_to_what_cannot(looks: Looks, queue: Reconciler) -> None:
    held = asyncio.Event()

    async def wait_the_second_time(node: str) -> float | None:
        if node == "urgent":
            return None
        if looks.seen.count(node) == 1:
            return 0
        await held.wait()
        return None

    looks.answer = wait_the_second_time
    for node in "abc":
        queue.touch(node)
    await looks.until(4)
    queue.touch("urgent")
    await looks.until(5)
    assert looks.seen[3:] == ["a", "urgent"]
    held.set()
    await looks.until(7)
    assert looks.seen[5:] == ["b", "c"]


async def test_beside_what_is_due_at_once_little_else_is_done(looks: Looks) -> None:
    queue = Reconciler(looks, Metrics())
    workers = [asyncio.create_task(queue.work()) for _ in range(12)]
    ends = {kind: asyncio.Event() for kind in ("urgent", "patient")}

    async def wait(node: str) -> float | None:
        await ends[node.partition("-")[0]].wait()
        return None

    looks.answer = wait
    queue.touch("urgent-1")
    await looks.until(1)
    assert not queue.is_crowded
    queue.touch("urgent-2")
    await looks.until(2)
    assert queue.is_crowded
    for number in range(6):
        queue._touch_patiently(f"patient-{number}")
    await looks.until(4)
    queue.touch("urgent-3")
    await looks.until(5)
    assert sorted(looks.running) == ["patient-0", "patient-1", "urgent-1", "urgent-2", "urgent-3"]
    ends["urgent"].set()
    await looks.until(9)
    assert sorted(looks.running) == [f"patient-{number}" for number in range(6)]
    ends["patient"].set()
    for worker in workers:
        worker.cancel()


async def test_what_can_wait_comes_to_its_turn_in_a_rush_without_end(looks: Looks) -> None:
    queue = Reconciler(looks, Metrics())

    async def rush(node: str) -> float | None:
        await asyncio.sleep(0)
        if node == "patient":
            return 0 if looks.seen.count(node) == 1 else None
        queue.touch(node)
        return None

    looks.answer = rush
    queue.touch("patient")
    queue.touch("busy")
    worker = asyncio.create_task(queue.work())
    await looks.until(30)
    worker.cancel()
    assert looks.seen.count("patient") == 2


async def test_who_waits_and_is_asked_for_is_looked_at_once_and_soon(looks: Looks) -> None:
    queue = Reconciler(looks, Metrics())
    for node in ("a", "b"):
        queue._touch_patiently(node)
    queue.touch("b")
    assert queue.is_crowded
    worker = asyncio.create_task(queue.work())
    await looks.until(2)
    worker.cancel()
    assert looks.seen == ["b", "a"]
    assert not queue.is_crowded


async def test_who_changes_while_all_are_looked_at_does_not_wait_for_them(looks: Looks) -> None:
    queue = Reconciler(looks, Metrics())
    queue._touch_patiently("z")
    queue.touch("y")
    queue.touch_all("abcyz")
    queue.touch("c")
    assert queue.is_crowded

    async def change_meanwhile(node: str) -> float | None:
        if node == "a" and looks.seen.count("a") == 1:
            queue.touch("b")
            queue.touch("z")
            queue.touch_all("ab")
        return None

    looks.answer = change_meanwhile
    worker = asyncio.create_task(queue.work())
    await looks.until(6)
    worker.cancel()
    assert looks.seen == ["y", "c", "a", "b", "z", "a"]
    assert not queue.is_crowded, "each waits in one queue"


async def test_looks_that_find_nothing_to_do_leave_others_their_turn(looks: Looks, queue: Reconciler) -> None:
    """Else what happens while thousands of nodes are looked at is heard of only afterwards."""
    queue.touch_all(f"node-{number}" for number in range(1000))
    await looks.until(1)
    queue.touch("changed")
    await looks.until(1001)
    assert looks.seen.index("changed") < 500


async def test_when_an_outage_ends_nobody_waits_for_his_turn_to_try_again(looks: Looks, queue: Reconciler) -> None:
    async def fail_once(node: str) -> float | None:
        if looks.seen.count(node) == 1:
            # later than this test may take
            raise Unavailable("patch", "nodes/status", "later", 503, 1000.0)
        return None

    looks.answer = fail_once
    queue.touch("a")
    queue.touch("b")
    await looks.until(2)
    queue.retry_now()
    await looks.until(4)
    queue.retry_now()
    queue.touch("c")
    await looks.until(5)
    assert looks.seen == ["a", "b", "a", "b", "c"]
