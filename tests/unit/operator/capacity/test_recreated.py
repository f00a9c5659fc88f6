"""A NodeDevice or a Node that is gone, or was made again: whose the numbers of the Node are."""

from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.capacity.ownership import LOST_GRACE_SECONDS

from tests.fakes.operator.node_status import ALLOCATABLE, CAPACITY
from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, advertising, node_device, settle


class TestLost:
    """The NodeDevice is gone, and the Node is there."""

    def lose(self, **fields: Any) -> OperatorModel:
        model = advertising(4, **fields)
        model.node_devices.clear()
        return model

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_its_number_stays_for_some_seconds_and_goes(self, is_restarted: bool) -> None:
        model = self.lose()
        if is_restarted:
            model.restart()
        assert model.reconcile().due_at == model.now + LOST_GRACE_SECONDS
        model.now += LOST_GRACE_SECONDS - 0.1
        model.reconcile()
        assert (model.node.seen(GPU).capacity, model.applies) == (4, [])
        model.now += 0.1
        assert model.reconcile().due_at is None
        assert not model.node.seen(GPU).is_present
        assert [apply.numbers for apply in model.applies] == [{}]
        assert model.reported() == []

    def test_made_again_in_time_nothing_is_written(self) -> None:
        model = self.lose()
        model.reconcile()
        model.now += 1
        settle(model, [node_device(has_status=False)])
        settle(model, [node_device(available=4)])
        model.now += 60
        assert model.reconcile().due_at is None
        assert (model.node.seen(GPU).capacity, model.applies) == (4, [])
        model.node_devices.clear()
        assert model.reconcile().due_at == model.now + LOST_GRACE_SECONDS

    @pytest.mark.parametrize("drifted", [False, True])
    def test_it_stays_in_what_is_written_meanwhile(self, drifted: bool) -> None:
        model = self.lose()
        if drifted:
            model.node.update("kubelet", GPU, 2, (ALLOCATABLE,))
        settle(model, [node_device(NIC, available=1)])
        assert (model.shown(), model.node.seen(NIC).capacity) == ((4, 4), 1)

    def test_a_part_that_somebody_took_takes_nothing_else_along(self) -> None:
        model = self.lose()
        model.node.update("kubelet", GPU, 9, (CAPACITY,))
        model.reconcile()
        assert (model.node.seen(GPU).allocatable, model.applies) == (4, [])
        model.now += LOST_GRACE_SECONDS
        model.reconcile()
        assert model.shown() == (9, None)

    @pytest.mark.parametrize(("seconds", "shown"), [(1.0, 4), (LOST_GRACE_SECONDS, 9)])
    def test_what_somebody_wrote_meanwhile_is_his_once_it_is_given_up(self, seconds: float, shown: int) -> None:
        model = self.lose()
        model.reconcile()
        model.node.update("kubelet", GPU, 9)
        model.reconcile()
        assert model.node.seen(GPU).capacity == 9
        model.now += seconds
        model.reconcile()
        settle(model, [node_device(available=4)])
        assert model.node.seen(GPU).capacity == shown


def test_a_node_made_again_under_the_same_name_is_not_ours_yet() -> None:
    model = advertising(4)
    model.node.remake("uid-2")
    model.node.update("kubelet", GPU, 0)
    # the agent took its object over with all that was stored in it
    settle(model, [node_device(owner_uid="uid-2", available=4)])
    assert (model.applies, model.condition(Condition.CONFLICT).reason) == ([], Reason.FOREIGN_OWNER)


class TestRecreatedMeanwhile:
    """The Node was made again while no operator ran, and its NodeDevice was taken over with the conditions stored in it."""

    def again(self, model: OperatorModel) -> OperatorModel:
        model.restart()
        model.node.remake("uid-2", made=f"t{model.now + 1}")
        model.now += 2
        model.applies.clear()
        model.publish(node_device(owner_uid="uid-2", available=4))
        return model

    @pytest.mark.parametrize("number", [4, 9])
    def test_a_foreign_number_is_a_conflict(self, number: int) -> None:
        model = self.again(advertising(4))
        model.node.update("kubelet", GPU, number)
        model.reconcile()
        assert (model.applies, model.reported()) == ([], ["CapacityConflict"])
        assert model.condition(Condition.CONFLICT).reason == Reason.FOREIGN_OWNER

    def test_a_contest_of_the_node_before_is_no_claim_on_this_one(self) -> None:
        model = advertising(4)
        for _ in range(3):
            model.node.update("kubelet", GPU, 0)
            model.reconcile()
        assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY
        self.again(model).node.update("admin", GPU, 9)
        for _ in range(2):
            model.reconcile()
            model.now += 1000
        assert (model.applies, model.node.seen(GPU).capacity) == ([], 9)
        assert model.condition(Condition.CONFLICT).reason == Reason.FOREIGN_OWNER

    def test_what_is_advertised_there_is_ours_after_the_next_restart(self) -> None:
        model = self.again(advertising(4))
        model.reconcile()
        assert model.condition(Condition.ADVERTISED).since >= model.node.made
        model.restart()
        model.node.update("kubelet", GPU, 0)
        model.reconcile()
        assert (model.node.seen(GPU).capacity, model.repairs) == (4, ["zeroed"])

    def test_a_clock_that_is_behind_makes_no_difference(self) -> None:
        model = OperatorModel()
        model.node.remake("uid-1", made=f"t{model.now + 500}")
        settle(model, [node_device(available=4)])
        model.restart()
        model.node.update("kubelet", GPU, 0)
        model.reconcile()
        assert (model.node.seen(GPU).capacity, model.repairs) == (4, ["zeroed"])
