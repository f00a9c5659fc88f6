"""How much one reconcile writes: a node's budget of requests, what interrupts it, and when the next one goes on."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_operator.capacity.ownership import LOST_GRACE_SECONDS
from nodedevice_operator.capacity.reconciler import CapacityOutcome, CapacityReconciler
from nodedevice_operator.reconcile.condition_reconciler import NODE_MISSING_GRACE_SECONDS
from nodedevice_operator.reconcile.turn import REQUESTS_AT_ONCE, Budget, Turn

from tests.fakes.operator.collaborators import Clock
from tests.fakes.operator.operator_model import NIC, node_device
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.bench import Bench, with_pod


def test_a_turn_is_over_when_the_budget_is_or_something_else_is_due(clock: Clock) -> None:
    budget, is_due = Budget(clock), [False]
    turn = Turn(budget, lambda: is_due[0])
    assert (turn.is_over(), turn.wait_seconds()) == (False, None)
    is_due[0] = True
    assert (turn.is_over(), turn.wait_seconds()) == (True, None)
    is_due[0] = False
    for _ in range(REQUESTS_AT_ONCE):
        turn.spend()
    # what is left undone by nobody needs no other turn
    assert turn.wait_seconds() is None
    assert turn.is_over()
    assert turn.wait_seconds() == pytest.approx(1.0)
    # it stays over, though there is some again
    clock.now += 1.0
    assert (turn.is_over(), turn.wait_seconds()) == (True, 0.0)


@pytest.fixture
def slow(bench: Bench) -> Bench:
    """Its conditions and PodDevices take a tenth of a second each: two are written, and then the node's slice is over."""
    # to the second, so that sums are exact
    bench.now[0] = 0.0

    def take(call: str) -> None:
        bench.now[0] += 0.1 if call in ("apply_conditions", "apply_pod_device") else 0.0

    bench.cluster.on_call = take
    return bench


async def written(bench: Bench) -> list[str]:
    """The kinds of what is written in one reconcile."""
    return [line.partition(" ")[0] for line in await bench.reconcile()]


async def test_what_follows_the_capacity_is_interrupted_by_a_change(slow: Bench) -> None:
    await slow.see(*(node_device(f"example.com/r{number}", available=1) for number in range(5)))
    slow.queue.changed = True
    rounds = [await written(slow) for _ in range(3)]
    assert rounds == [["apply", "conditions", "conditions"], ["conditions", "conditions"], ["conditions"]]
    # without a change, nothing interrupts it
    slow.queue.changed = False
    await slow.see(*(node_device(f"example.com/n{number}", available=1) for number in range(5)))
    assert len(await slow.reconcile()) == 1 + 5


@pytest.mark.parametrize(
    ("seconds", "numbers"),
    [
        pytest.param(0.1, [2, 2, 1], id="within its slice"),
        pytest.param(0.2, [2, 2, 1], id="at its end"),
        pytest.param(9.0, [5, 0, 0], id="later"),
    ],
)
async def test_it_is_interrupted_when_the_capacity_is_due(
    slow: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float, numbers: list[int]
) -> None:
    """As when the Node's budget of writes is used up: the rest must not hold up what has still to be written."""
    decide = slow.reconciler.capacity.reconcile

    async def late(_: CapacityReconciler, *args: Any) -> CapacityOutcome:
        return replace(await decide(*args), due_at=slow.now[0] + seconds, is_late=True)

    monkeypatch.setattr(CapacityReconciler, "reconcile", late)
    await slow.see(*(node_device(f"example.com/r{number}", available=1) for number in range(5)))
    assert [(await written(slow)).count("conditions") for _ in range(3)] == numbers


async def test_pods_are_interrupted_too_and_none_is_forgotten(slow: Bench) -> None:
    allocations = tuple(held(f"gpu-{n}", pod=f"pod-{n}") for n in range(3))
    for number in range(3):
        with_pod(slow, f"pod-{number}")
    await slow.see(node_device(total=3, healthy=3, allocated=3, allocations=allocations))
    slow.queue.changed = True
    await slow.reconcile()
    assert len(slow.cluster.pod_devices) == 2
    await slow.see()
    await slow.reconcile()
    assert (len(slow.cluster.pod_devices), slow.recorder.reasons().count("DevicesAllocated")) == (3, 3)


async def test_of_what_is_due_later_the_first_counts(bench: Bench) -> None:
    gpu, lost = node_device(available=4), node_device(NIC, available=1)
    await bench.settle(gpu, lost)
    assert await bench.reconciler.reconcile("node-a") is None
    del bench.cluster.node_devices[lost.name]
    await bench.see(replace(gpu, owner_uid="uid-of-another"))
    assert await bench.reconciler.reconcile("node-a") == NODE_MISSING_GRACE_SECONDS
    bench.now[0] += NODE_MISSING_GRACE_SECONDS
    assert await bench.reconciler.reconcile("node-a") == LOST_GRACE_SECONDS - NODE_MISSING_GRACE_SECONDS
