"""Which resource is preferred, and how long it is awaited."""

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.preference import LONGEST_SECONDS, Preference

A, B, C = "example.com/a", "example.com/b", "example.com/c"
NOW = 1000.0


def test_priorities_come_before_names_and_none_before_all() -> None:
    preference = Preference({}, Deadlines())
    preference.ranked({A: 5, B: -5, C: 5}, [], NOW)
    assert sorted([A, B, C, "example.com/z"], key=preference.key) == [B, "example.com/z", A, C]
    preference.ranked({A: 1}, [], NOW)
    assert sorted([A, "example.com/z"], key=preference.key) == ["example.com/z", A]
    preference.ranked({A: 2**31, B: 0}, [], NOW)
    assert sorted([A, "example.com/z", B], key=preference.key) == [B, "example.com/z", A]


def test_the_same_again_changes_nothing() -> None:
    preference = Preference({}, deadlines := Deadlines())
    assert preference.ranked({A: 1}, [A, B], NOW)
    assert not preference.ranked({A: 1}, [A, B], NOW + 1)
    assert not preference.ranked({A: 1}, [A], NOW + 1)
    assert deadlines.next() == NOW + LONGEST_SECONDS
    assert preference.ranked({A: 1}, [A, B, C], NOW + 2)
    assert deadlines.next() == NOW + 2 + LONGEST_SECONDS
    assert preference.ranked({A: 2}, [A], NOW + 3)
