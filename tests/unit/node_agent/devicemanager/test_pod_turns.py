"""Many pods wait at once: in which order they are served, and how many devices one event checks for them."""

from collections.abc import Callable

import pytest
from nodedevice_agent.devicemanager.allocation import allocator
from nodedevice_agent.devicemanager.effects import UnknownResource
from nodedevice_agent.devicemanager.pods import Container

from tests.unit.node_agent.devicemanager.scenario import Scenario, calls, container, pod


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many devices one event checks."""
    return lambda most: monkeypatch.setattr(allocator, "_MOST_LOOKS", most)


def test_pods_that_come_at_once_have_their_turns_in_events_of_their_own(limit: Callable[[int], None]) -> None:
    """A node whose pods all wait for one list must not stand while each of them looks at all of its devices."""
    limit(600)
    scenario = Scenario.with_plugin(100)
    scenario.answer_all(scenario.happens("pod_events.synced", [pod(f"p{number}", gpu=1) for number in range(10)]))
    assert [*scenario.held()] == ["p0/main", "p1/main"]
    for count in (4, 6, 8, 10):
        assert scenario.manager.next_deadline() == scenario.now
        scenario.answer_all(scenario.happens("tick"))
        assert len(scenario.held()) == count
    assert scenario.manager.next_deadline() is None
    assert scenario.manager.allocator.unallocated == {}


@pytest.mark.parametrize("is_list", [False, True], ids=["a list of pods", "a list of devices"])
@pytest.mark.parametrize(("most", "served"), [(712, 2), (713, 3)])
def test_an_event_looks_at_so_many_devices(limit: Callable[[int], None], most: int, served: int, is_list: bool) -> None:
    """Each pod counts as 256 of them, beside the hundred that it looks at."""
    limit(most)
    pods = [pod(f"p{number}", gpu=1) for number in range(5)]
    if is_list:
        scenario = Scenario()
        scenario.connect()
        scenario.see(*pods)
        effects = scenario.lists(100)
    else:
        scenario = Scenario.with_plugin(100)
        effects = scenario.happens("pod_events.synced", pods)
    assert len(calls(effects)) == served


def test_pods_that_come_one_by_one_are_served_at_once(limit: Callable[[int], None]) -> None:
    limit(600)
    scenario = Scenario()
    scenario.connect()
    scenario.see(pod("first", gpu=1))
    # an event about all that wait comes before
    scenario.answer_all(scenario.lists(100))
    scenario.run(*(pod(f"p{number}", gpu=1) for number in range(5)))
    assert len(scenario.held()) == 6


def test_a_pod_that_goes_before_its_turn_has_none(limit: Callable[[int], None]) -> None:
    limit(1)
    scenario = Scenario.with_plugin(2)
    scenario.answer_all(scenario.happens("pod_events.synced", [pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=1)]))
    scenario.gone("q")
    scenario.answer_all(scenario.happens("tick"))
    assert [*scenario.held()] == ["p/main", "r/main"]
    assert scenario.manager.next_deadline() is None


def test_what_a_list_of_pods_frees_goes_to_who_waits_longest() -> None:
    for ended in ([], [pod("old", gpu=1, has_ended=True)]):
        scenario = Scenario.with_plugin(1).run(pod("old", gpu=1), pod("waits", gpu=1))
        scenario.answer_all(scenario.happens("pod_events.synced", [*ended, pod("waits", gpu=1), pod("new", gpu=1)]))
        assert [*scenario.held()] == ["waits/main"]


def test_only_devices_of_resources_that_a_pod_asks_for_count(limit: Callable[[int], None]) -> None:
    limit(713)
    scenario = Scenario.with_plugin(100, nics=[f"n{number}" for number in range(1000)])
    unknown = Container("other", limits={"example.com/unknown": 1})
    pods = [pod(f"p{number}", container(gpu=1), unknown) for number in range(5)]
    effects = scenario.happens("pod_events.synced", pods)
    assert len(calls(effects)) == 3
    assert len([effect for effect in effects if isinstance(effect, UnknownResource)]) == 3
