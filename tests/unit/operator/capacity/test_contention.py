"""A writer that changes our numbers again and again: how long a name is not written, and how that ends."""

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.contention import Contention

from tests.fakes.operator.operator_model import GPU, OperatorModel, advertising


class TestContention:
    """To the second: what is undone, written again and paused."""

    def test_three_within_a_minute_pause_it(self) -> None:
        assert Contention().repaired(0).repaired(1).undone(59.9) == Contention((), 1, 119.9)
        # the first is a minute old
        known = Contention().repaired(0).repaired(1)
        assert known.undone(60) is known

    def test_nothing_is_counted_while_it_is_paused(self) -> None:
        paused = Contention((158, 159), 1, 160)
        assert paused.undone(159.9) is paused
        assert paused.undone(160).pauses == 2
        assert (paused.wait_seconds(159), paused.wait_seconds(161)) == (1, 0)

    @pytest.mark.parametrize(("quiet", "pauses"), [(599.9, 2), (600, 1)])
    def test_after_the_longest_pause_without_any_it_begins_from_the_first(self, quiet: float, pauses: int) -> None:
        now = 160 + quiet
        assert Contention((now - 1, now), 1, 160).undone(now) == Contention((), pauses, now + 60 * pauses)


class TestContest:
    """The same writer again and again."""

    def provoke(self, model: OperatorModel, times: int = 3, number: int | None = 0, writer: str = "kubelet") -> None:
        for _ in range(times):
            model.node.update(writer, GPU, number)
            model.reconcile()
            model.now += 1

    def test_the_third_change_within_a_minute_ends_it(self) -> None:
        model = advertising(4)
        self.provoke(model)
        assert model.repairs == ["zeroed", "zeroed"]
        assert model.reported() == ["CapacityRepaired", "CapacityRepaired", "CapacityConflict"]
        assert model.node.seen(GPU).capacity == 0
        assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY

    @pytest.mark.parametrize(("writers", "pause"), [("abab", 0), ("aaaa", 31)], ids=["by others", "further apart"])
    def test_changes_do_not_add_up(self, writers: str, pause: int) -> None:
        model = advertising(4)
        for writer in writers:
            self.provoke(model, 1, writer=writer)
            model.now += pause
        assert model.repairs == ["zeroed"] * 4

    def test_it_is_tried_again_after_a_minute_and_then_less_often(self) -> None:
        model = advertising(4)
        waits = []
        for _ in range(6):
            self.provoke(model)
            until = model.reconcile().due_at
            assert until is not None
            waits.append(round(until - model.now) + 1)
            model.now = until - 0.5
            model.reconcile()
            assert model.node.seen(GPU).capacity == 0
            model.now = until
            model.reconcile()
            assert model.node.seen(GPU).capacity == 4
        assert waits == [60, 120, 240, 480, 600, 600]

    def test_it_is_taken_back_at_once_when_the_writer_lets_go(self) -> None:
        model = advertising(4)
        self.provoke(model)
        model.node.update("kubelet", GPU, None)
        model.reconcile()
        assert model.node.seen(GPU).capacity == 4
        assert model.reported()[-1] == "CapacityConflictEnded"

    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_whoever_keeps_removing_it_is_left_in_peace_too(self, is_restarted: bool) -> None:
        model = advertising(4)
        self.provoke(model, number=None)
        before = len(model.applies)
        if is_restarted:
            model.restart()
        for _ in range(2):
            assert model.reconcile().due_at is not None
            assert model.condition(Condition.CONFLICT).reason == Reason.CHANGED_REPEATEDLY
        assert len(model.applies) == before
        assert not model.node.seen(GPU).is_present
        model.now += 60
        model.reconcile()
        assert model.node.seen(GPU).capacity == 4
        assert model.condition(Condition.CONFLICT).status == "False"

    def test_a_restart_waits_again_before_it_forces(self) -> None:
        model = advertising(4)
        self.provoke(model)
        model.restart()
        reported = len(model.events)
        assert model.reconcile().due_at == model.now + 60
        assert model.node.seen(GPU).capacity == 0
        assert len(model.events) == reported
        model.now += 60
        model.reconcile()
        assert model.node.seen(GPU).capacity == 4
