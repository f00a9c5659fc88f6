"""A pod whose plugin failed is retried when its backoff is over, whatever happens to other pods."""

from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, held_by, pod


def failed(devices: int = 2) -> RuntimeScenario:
    scenario = RuntimeScenario.with_plugin(devices)
    (call,) = calls(scenario.see(pod("q", gpu=1)))
    scenario.fail(call)
    return scenario


def test_the_same_pod_is_seen_once_more() -> None:
    assert calls(failed().see(pod("q", gpu=1))) == []


def test_another_ends() -> None:
    scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
    (call,) = calls(scenario.see(pod("q", gpu=1)))
    scenario.fail(call)
    assert calls(scenario.gone("p")) == []
    assert scenario.held() == {}


def test_another_ends_while_it_is_being_allocated() -> None:
    scenario = failed()
    assert len(calls(scenario.see(pod("p", gpu=1)))) == 1
    assert calls(scenario.gone("p")) == []
    assert len(calls(scenario.passes(1))) == 1


def test_the_containers_of_another_end() -> None:
    scenario = RuntimeScenario.with_plugin(2).run(pod("p", gpu=1))
    made = scenario.create("p")
    scenario.sync(("p", made))
    (call,) = calls(scenario.see(pod("q", gpu=1)))
    scenario.fail(call)
    scenario.gone("p")
    assert calls(scenario.end(made, "p")) == []
    assert scenario.held() == {}
    assert len(calls(scenario.passes(1))) == 1


def test_pods_are_listed_while_a_lost_response_is_asked_for_again() -> None:
    scenario = Scenario(Checkpoint((held_by("p", "d0", response=None),), {GPU: ()}))
    scenario.happens("pods_synced", [pod("p", gpu=1)])
    (call,) = calls(scenario.plugin(1))
    scenario.fail(call)
    assert calls(scenario.happens("pods_synced", [pod("p", gpu=1)])) == []
    assert len(calls(scenario.passes(1))) == 1


def test_another_that_failed_earlier_is_retried() -> None:
    scenario = failed()
    scenario.passes(0.5)
    (call,) = calls(scenario.see(pod("r", gpu=1)))
    scenario.fail(call)
    assert len(calls(scenario.passes(0.5))) == 1
    assert len(calls(scenario.passes(0.5))) == 1


def test_what_a_pod_waits_for_is_published_once() -> None:
    scenario = Scenario.with_plugin(1).run(pod("p", gpu=1), pod("q", gpu=1))
    assert scenario.reasons() == {"q": "NotEnoughDevices"}
    assert scenario.manager.allocator.reconsider([GPU], scenario.now) == []
