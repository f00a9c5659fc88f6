"""A writer that changes our numbers again and again: how long a name is not written, and how that ends."""

import pytest
from nodedevice_api.names import Condition, Reason

from tests.fakes.operator.operator_model import GPU, OperatorModel, advertising


def provoke(model: OperatorModel, times: int = 3, number: int | None = 0, writer: str = "kubelet") -> None:
    for _ in range(times):
        model.node.update(writer, GPU, number)
        model.reconcile()
        model.now += 1


def pause(model: OperatorModel) -> float:
    """For how many seconds it is not written."""
    until = model.reconcile().due_at
    assert until is not None
    return until - model.now


def test_the_third_change_within_a_minute_ends_it() -> None:
    model = advertising(4)
    provoke(model)
    assert model.repairs == ["zeroed", "zeroed"]
    assert model.reported() == ["CapacityRepaired", "CapacityRepaired", "CapacityConflict"]
    assert model.node.seen(GPU).capacity == 0
    assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY


@pytest.mark.parametrize(("writers", "seconds"), [("abab", 0), ("aaaa", 31)], ids=["by others", "further apart"])
def test_changes_do_not_add_up(writers: str, seconds: int) -> None:
    model = advertising(4)
    for writer in writers:
        provoke(model, 1, writer=writer)
        model.now += seconds
    assert model.repairs == ["zeroed"] * 4


def test_it_is_tried_again_after_a_minute_and_then_less_often() -> None:
    model = advertising(4)
    waits = []
    for _ in range(6):
        provoke(model)
        waits.append(pause(model) + 1)
        for seconds, number in ((pause(model) - 0.5, 0), (0.5, 4)):
            model.now += seconds
            model.reconcile()
            assert model.node.seen(GPU).capacity == number
    assert waits == [60, 120, 240, 480, 600, 600]
    # after the longest pause without any, it begins from the first
    model.now += 600
    provoke(model)
    assert pause(model) + 1 == 60


def test_it_is_taken_back_at_once_when_the_writer_lets_go() -> None:
    model = advertising(4)
    provoke(model)
    model.node.update("kubelet", GPU, None)
    model.reconcile()
    assert (model.node.seen(GPU).capacity, model.reported()[-1]) == (4, "CapacityConflictEnded")


@pytest.mark.parametrize(("number", "is_restarted"), [(None, False), (None, True), (0, True)])
def test_whoever_keeps_changing_it_is_left_in_peace_also_after_a_restart(
    number: int | None, is_restarted: bool
) -> None:
    model = advertising(4)
    provoke(model, number=number)
    before = len(model.applies), len(model.events)
    if is_restarted:
        model.restart()
    for _ in range(2):
        assert pause(model) == (60 if is_restarted else 59)
        assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY
    assert (len(model.applies), len(model.events), model.node.seen(GPU).capacity) == (*before, number)
    model.now += 60
    model.reconcile()
    assert (model.node.seen(GPU).capacity, model.condition(Condition.CONFLICT).status) == (4, "False")
