"""Many pods wait at once: in which order they are served, and how many devices one event checks for them."""

import pytest
from nodedevice_agent.devicemanager.allocation import allocator, pod_allocation
from nodedevice_agent.devicemanager.allocation.pod_allocation import PodAllocation
from nodedevice_agent.devicemanager.effects import UnknownResource
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.unit.node_agent.devicemanager.scenario import (
    NIC,
    Scenario,
    calls,
    container,
    pod,
)


def test_pods_that_come_at_once_have_their_turns_in_events_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose pods all wait for one list must not stand while each of them looks at all of its devices."""
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 600)
    scenario = Scenario.with_plugin(100)
    pods = [pod(f"p{number}", gpu=1) for number in range(10)]
    scenario.answer_all(scenario.happens("pod_events.synced", pods))
    assert [*scenario.held()] == ["p0/main", "p1/main"]
    for count in (4, 6, 8, 10):
        assert scenario.manager.next_deadline() == scenario.now
        scenario.answer_all(scenario.happens("tick"))
        assert len(scenario.held()) == count
    assert scenario.manager.next_deadline() is None
    assert scenario.manager.allocator.unallocated == {}


@pytest.mark.parametrize("is_list", [False, True], ids=["a list of pods", "a list of devices"])
@pytest.mark.parametrize(("most", "served"), [(712, 2), (713, 3)])
def test_an_event_looks_at_so_many_devices(
    monkeypatch: pytest.MonkeyPatch, most: int, served: int, is_list: bool
) -> None:
    """Each pod counts as 256 of them, beside the hundred that it looks at."""
    monkeypatch.setattr(allocator, "_MOST_LOOKS", most)
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


def test_pods_that_come_one_by_one_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 600)
    scenario = Scenario()
    scenario.connect()
    scenario.see(pod("first", gpu=1))
    # an event about all that wait comes before
    scenario.answer_all(scenario.lists(100))
    scenario.run(*(pod(f"p{number}", gpu=1) for number in range(5)))
    assert len(scenario.held()) == 6


def test_who_waits_is_tried_once_for_all_that_a_list_of_pods_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.with_plugin(4).run(pod("a", gpu=1), pod("b", gpu=1), pod("c", gpu=2))
    waiting = pod("waits", gpu=3)
    scenario.see(waiting)
    tried, shortage = [], PodAllocation.shortage

    def noted(current: PodAllocation) -> object:
        tried.append(current.pod.uid)
        return shortage(current)

    monkeypatch.setattr(PodAllocation, "shortage", noted)
    scenario.happens("pod_events.synced", [pod("c", gpu=2), waiting])
    assert tried == ["waits"]


def test_a_pod_is_tried_again_where_what_it_lacks_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.with_plugin(1, nics=["n0"]).run(pod("other", gpu=1))
    scenario.see(pod("p", gpu=1, nic=1))
    tried, shortage = [], PodAllocation.shortage

    def noted(current: PodAllocation) -> object:
        tried.append(current.pod.uid)
        return shortage(current)

    monkeypatch.setattr(PodAllocation, "shortage", noted)
    scenario.lists(["n0", "n1"], NIC, 2)
    assert tried == []
    scenario.lists(2)
    assert tried == ["p"]


def test_where_no_device_has_a_node_nobody_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred thousand devices, for each pod."""

    def asked_for(*_: object) -> None:
        raise AssertionError("nodes are asked for")

    monkeypatch.setattr(pod_allocation, "crowds", asked_for)
    monkeypatch.setattr(Resource, "numa_nodes", asked_for)
    assert Scenario.with_plugin(2).run(pod("p", gpu=1)).held() == {"p/main": ("d0",)}


def test_a_pod_that_goes_before_its_turn_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 1)
    scenario = Scenario.with_plugin(2)
    scenario.answer_all(scenario.happens("pod_events.synced", [pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=1)]))
    scenario.gone("q")
    scenario.answer_all(scenario.happens("tick"))
    assert [*scenario.held()] == ["p/main", "r/main"]
    assert scenario.manager.next_deadline() is None


def test_what_a_list_of_pods_frees_goes_to_who_waits_longest() -> None:
    for ended in ([], [pod("old", gpu=1, has_ended=True)]):
        scenario = Scenario.with_plugin(1).run(pod("old", gpu=1))
        scenario.run(pod("waits", gpu=1))
        scenario.answer_all(scenario.happens("pod_events.synced", [*ended, pod("waits", gpu=1), pod("new", gpu=1)]))
        assert [*scenario.held()] == ["waits/main"]


def test_only_devices_of_resources_that_a_pod_asks_for_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 713)
    scenario = Scenario.with_plugin(100, nics=[f"n{number}" for number in range(1000)])
    unknown = Container("other", limits={"example.com/unknown": 1})
    pods = [pod(f"p{number}", container(gpu=1), unknown) for number in range(5)]
    effects = scenario.happens("pod_events.synced", pods)
    assert len(calls(effects)) == 3
    assert len([effect for effect in effects if isinstance(effect, UnknownResource)]) == 3
