"""What is told late, and what is not told twice."""

from nodedevice_operator.events.transitions import NORMAL, Event, about_pod
from nodedevice_operator.leader import takeover as handover
from nodedevice_operator.leader.takeover import Handover


def event(number: int) -> Event:
    return Event(about_pod("default", f"pod-{number}", f"uid-{number}"), NORMAL, "Test", "")


def test_what_came_up_since_nobody_told_is_told_once() -> None:
    now = [0.0]
    held = Handover(lambda: now[0])
    for number in range(5):
        now[0] = float(number)
        held.hold(event(number))
    assert held.take(3.0) == [event(3), event(4)]
    assert held.take(0.0) == []


def test_of_too_many_the_newest_are_kept() -> None:
    held = Handover(lambda: 1.0)
    for number in range(handover._MOST_HELD + 1):
        held.hold(event(number))
    kept = held.take(0.0)
    assert len(kept) == handover._MOST_HELD
    assert kept[0] == event(1)


def test_nodes_that_changed_since_nobody_led_are_named_once() -> None:
    now = [0.0]
    held = Handover(lambda: now[0])
    for moment, node in enumerate(("a", "b", "c", "a")):
        now[0] = float(moment)
        held.skip(node)
    assert held.skipped(2.0) == ["c", "a"]
    assert held.skipped(0.0) == []


def test_of_too_many_nodes_the_last_that_changed_are_kept() -> None:
    held = Handover(lambda: 1.0)
    for number in range(handover._MOST_HELD):
        held.skip(f"node-{number}")
    held.skip("node-0")
    held.skip("another")
    kept = held.skipped(0.0)
    assert len(kept) == handover._MOST_HELD
    assert kept[0] == "node-2"
    assert kept[-2:] == ["node-0", "another"]
