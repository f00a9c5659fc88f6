"""Conditions of a NodeDevice: their bounds, and since when they hold."""

from nodedevice_agent.kube.conditions import condition_of, place_taken, with_condition
from nodedevice_api.names import Condition
from nodedevice_api.nodedevice import ConditionStatus, NodeDeviceStatus

from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY


def test_whoever_has_the_place_of_a_name_is_named() -> None:
    assert "names at most, and example.com/a has its place; this" in place_taken("example.com/a")
    assert "names at most, and others have all places; this" in place_taken("")


def test_a_condition_that_is_only_there_while_it_holds() -> None:
    """It keeps the time of its beginning while its message changes."""
    before = NodeDeviceStatus(
        conditions=[ConditionStatus(type=Condition.OFFERED_TWICE, status="True", last_transition_time=MONDAY)]
    )
    new = ("True", "OfferedTwice", "by another")
    for earlier, since in ((before, MONDAY), (NodeDeviceStatus(), TUESDAY)):
        [found] = with_condition(NodeDeviceStatus(), earlier, TUESDAY, Condition.OFFERED_TWICE, new).conditions
        assert (found.message, found.last_transition_time) == ("by another", since)
        assert condition_of(NodeDeviceStatus(conditions=[found]), Condition.OFFERED_TWICE) == new
    assert condition_of(before, Condition.HEALTHY) is None
