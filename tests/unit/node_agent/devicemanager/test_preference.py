"""Which resource is preferred, and how long it is awaited."""

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.preference import LONGEST_SECONDS, Preference
from nodedevice_agent.devicemanager.resources.resource import Resource

A, B, C = "example.com/a", "example.com/b", "example.com/c"
NOW = 1000.0


def resources(*names: str, live: tuple[str, ...] = ()) -> dict[str, Resource]:
    """Of built-in plugins that have registered. live: those that have listed."""
    found = {}
    for name in names:
        found[name] = Resource(name)
        found[name].connect(1, PluginOptions(scope=f"{BUILT_IN}x"))
        if name in live:
            found[name].list(1, accept([Device("d")]), NOW)
    return found


def waiting(found: dict[str, Resource]) -> list[str]:
    return [name for name, resource in found.items() if resource.presence.awaits_others]


def test_priorities_come_before_names_and_none_before_all() -> None:
    preference = Preference({}, Deadlines())
    preference.ranked({A: 5, B: -5, C: 5}, [], NOW)
    assert sorted([A, B, C, "example.com/z"], key=preference.key) == [B, "example.com/z", A, C]
    preference.ranked({A: 1}, [], NOW)
    assert sorted([A, "example.com/z"], key=preference.key) == ["example.com/z", A]
    preference.ranked({A: 2**31, B: 0}, [], NOW)
    assert sorted([A, "example.com/z", B], key=preference.key) == [B, "example.com/z", A]


def test_all_others_wait_for_an_awaited_one() -> None:
    found = resources(A, B, C)
    preference = Preference(found, deadlines := Deadlines())
    assert preference.ranked({}, [B], NOW)
    assert waiting(found) == [A, C]
    assert deadlines.next() == NOW + LONGEST_SECONDS
    assert preference.listed(A) == []
    assert preference.listed(C) == []
    assert waiting(found) == [A, C]
    assert preference.listed(B) == [A, C]
    assert not waiting(found)
    assert deadlines.next() is None


def test_one_that_has_listed_is_not_awaited() -> None:
    found = resources(A, B, live=(A,))
    preference = Preference(found, deadlines := Deadlines())
    assert not preference.ranked({}, [A], NOW)
    assert not waiting(found)
    assert deadlines.next() is None


def test_it_ends_at_its_deadline_and_not_before() -> None:
    found = resources(A, B)
    preference = Preference(found, deadlines := Deadlines())
    assert preference.due(NOW) == []
    preference.ranked({}, [A, "example.com/not-registered-yet"], NOW)
    assert preference.due(NOW + LONGEST_SECONDS - 0.001) == []
    assert waiting(found) == [A, B]
    assert preference.due(NOW + LONGEST_SECONDS) == [A, B]
    assert not waiting(found)
    assert deadlines.next() is None
    assert preference.due(NOW + 2 * LONGEST_SECONDS) == []


def test_the_same_again_changes_nothing() -> None:
    preference = Preference(resources(A, B), deadlines := Deadlines())
    assert preference.ranked({A: 1}, [A, B], NOW)
    assert not preference.ranked({A: 1}, [A, B], NOW + 1)
    assert not preference.ranked({A: 1}, [A], NOW + 1)
    assert deadlines.next() == NOW + LONGEST_SECONDS
    assert preference.ranked({A: 1}, [A, B, C], NOW + 2)
    assert deadlines.next() == NOW + 2 + LONGEST_SECONDS
    assert preference.ranked({A: 2}, [A], NOW + 3)


def test_other_peoples_plugins_do_not_wait() -> None:
    found = resources(A)
    found["example.com/z"] = Resource("example.com/z")
    found["example.com/z"].connect(2, PluginOptions())
    Preference(found, Deadlines()).ranked({}, [A], NOW)
    assert waiting(found) == []
