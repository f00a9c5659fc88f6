"""How much one reconcile writes: a node's budget of requests, and when the next one goes on."""

import pytest
from nodedevice_operator.reconcile.turn import _AT_LEAST, REQUESTS_AT_ONCE, REQUESTS_PER_SECOND, Budget, Turn


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_so_many_requests_at_once_and_then_some_together(clock: Clock) -> None:
    budget = Budget(clock)
    for _ in range(REQUESTS_AT_ONCE):
        assert budget.wait_seconds() == 0.0
        budget.spend()
    # for several, as each reconcile costs something
    assert budget.wait_seconds() == pytest.approx(_AT_LEAST / REQUESTS_PER_SECOND)
    clock.seconds += 0.5 / REQUESTS_PER_SECOND
    assert budget.wait_seconds() == pytest.approx((_AT_LEAST - 0.5) / REQUESTS_PER_SECOND)
    # one may be sent as soon as there is one
    clock.seconds += 0.6 / REQUESTS_PER_SECOND
    assert budget.wait_seconds() == 0.0


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
    assert turn.wait_seconds() == pytest.approx(_AT_LEAST / REQUESTS_PER_SECOND)
    # it stays over, though there is some again
    clock.seconds += 1.0
    assert (turn.is_over(), turn.wait_seconds()) == (True, 0.0)
