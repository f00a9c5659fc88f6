"""A name that is not advertised any more, and that somebody else sets: a device plugin that moved to the kubelet."""

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.capacity.decide import decide

from tests.fakes.operator.operator_model import GPU, OperatorModel, advertising, node_device, settle

GONE = node_device(endpoint="Gone")


def moved() -> OperatorModel:
    """Its plugin has left, and the kubelet has counted it since."""
    model = advertising(4)
    settle(model, [GONE])
    model.node.update("kubelet", GPU, 4)
    model.reconcile()
    return model


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_kubelet_that_has_it_is_a_conflict_reported_once_and_so_is_its_end(is_restarted: bool) -> None:
    model = moved()
    if is_restarted:
        model.restart()
    model.reconcile()
    conflict = model.condition(Condition.CONFLICT)
    assert (conflict.reason, "kubelet sets this name" in conflict.message) == (Reason.FOREIGN_OWNER, True)
    assert model.condition(Condition.ADVERTISED).reason == Reason.ENDPOINT_GONE
    assert (model.shown(), model.reported().count("CapacityConflict")) == ((4, 4), 1)
    model.node.update("kubelet", GPU, None)
    model.reconcile()
    model.reconcile()
    assert model.reported().count("CapacityConflictEnded") == 1
    assert model.condition(Condition.CONFLICT).status == "False"


def test_it_is_reported_once_even_while_its_condition_cannot_be_stored() -> None:
    node = moved().node.record()
    first = decide(node, [GONE], None, 0.0)
    again = decide(node, [GONE], first.history, 1.0)
    assert [event.reason for event in first.events] == ["CapacityConflict"] * 2
    assert again.events == ()


def test_a_kubelet_that_counts_none_of_it_is_no_conflict() -> None:
    model = moved()
    model.node.update("kubelet", GPU, 0)
    model.reconcile()
    assert model.condition(Condition.CONFLICT).status == "False"


def test_contention_with_the_kubelet_ends_when_the_plugin_is_gone() -> None:
    """Until then both write the name, and the operator backs off."""
    model = advertising(4)
    stopped = node_device(endpoint="Stopped")
    settle(model, [stopped])
    for _ in range(3):
        model.node.update("kubelet", GPU, 4)
        model.reconcile()
    assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY
    decision = settle(model, [GONE])
    assert model.condition(Condition.CONFLICT).reason == Reason.FOREIGN_OWNER
    assert decision.due_at is None
    assert model.shown() == (4, 4)


def test_a_plugin_that_comes_back_waits_for_the_kubelet() -> None:
    model = moved()
    settle(model, [node_device(available=2)])
    assert (model.condition(Condition.ADVERTISED).reason, model.shown()) == (Reason.FOREIGN_OWNER, (4, 4))
    model.node.update("kubelet", GPU, None)
    model.reconcile()
    assert model.shown() == (2, 2)
