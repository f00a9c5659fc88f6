"""Nodes that changed while nobody led."""

from nodedevice_operator.leader import takeover
from nodedevice_operator.leader.takeover import Takeover


def test_nodes_that_changed_since_nobody_led_are_named_once() -> None:
    now = [0.0]
    held = Takeover(lambda: now[0])
    for moment, node in enumerate(("a", "b", "c", "a")):
        now[0] = float(moment)
        held.skip(node)
    assert held.skipped(2.0) == ["c", "a"]
    assert held.skipped(0.0) == []


def test_of_too_many_nodes_the_last_that_changed_are_kept() -> None:
    held = Takeover(lambda: 1.0)
    for number in range(takeover._MOST_HELD):
        held.skip(f"node-{number}")
    held.skip("node-0")
    held.skip("another")
    kept = held.skipped(0.0)
    assert len(kept) == takeover._MOST_HELD
    assert kept[0] == "node-2"
    assert kept[-2:] == ["node-0", "another"]
