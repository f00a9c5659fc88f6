"""Pods that the kubelet's own device manager has served, because their resource's plugin registered there."""

import pytest

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, app, calls, pod, published

MAIN_GPU = {("main", GPU)}


def left(state: str = "Stopped") -> Scenario:
    """The plugin of GPUs has left, a moment ago or longer than the grace period."""
    scenario = Scenario.with_plugin(2, nics=["n0"])
    scenario.disconnect()
    scenario.passes(300 if state == "Gone" else 1)
    assert scenario.snapshot().state.value == state
    return scenario


@pytest.mark.parametrize("state", ["Stopped", "Gone"])
def test_it_waits_no_longer(state: str) -> None:
    scenario = left(state).run(pod("p", gpu=1))
    assert scenario.reasons() == {"p": "EndpointStopped"}
    assert published(scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU)) == {GPU}
    assert scenario.reasons() == {}


def test_what_the_kubelet_has_not_is_waited_for_on() -> None:
    scenario = left().run(pod("p", app("main"), app("other")))
    scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU | {("main", NIC)})
    assert [(w.container, w.reason) for w in scenario.manager.pending(GPU)] == [("other", "EndpointStopped")]


def test_the_other_resources_are_allocated_here() -> None:
    scenario = left().run(pod("p", gpu=1, nic=1))
    scenario.answer_all(scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU))
    assert scenario.held(NIC) == {"p/main": ("n0",)}


def test_the_plugins_return_gives_it_no_second_device() -> None:
    scenario = left().run(pod("p", gpu=1))
    scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU)
    assert not calls([*scenario.plugin(2, endpoint=3), *scenario.happens("pod_events.synced", [pod("p", gpu=1)])])
    assert scenario.snapshot().available == 2
    scenario.gone("p")
    scenario.run(pod("q", gpu=1))
    assert scenario.held() == {"q/main": ("d0",)}


def test_a_resource_that_is_served_here_is_not_the_kubelets() -> None:
    scenario = Scenario.with_plugin(0).run(pod("p", gpu=1))
    assert scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU) == []
    assert scenario.reasons() == {"p": "NotEnoughDevices"}


def test_a_static_pod_that_comes_again_waits_again() -> None:
    """Its UID is the same."""
    scenario = left()
    for _ in range(2):
        scenario.see(pod("p", gpu=1))
        assert scenario.reasons() == {"p": "EndpointStopped"}
        scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU)
        scenario.gone("p")


def test_its_pods_keep_no_resource_that_is_gone() -> None:
    scenario = left("Gone").run(pod("p", gpu=1))
    assert not scenario.forgets(GPU)
    scenario.happens("pod_events.kubelet_allocated", "p", MAIN_GPU)
    assert scenario.forgets(GPU)
