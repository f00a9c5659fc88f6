"""Pods end, and their devices are free: at once, or once the container runtime has reported the end of their containers."""

import pytest
from nodedevice_agent.devicemanager.effects import Publish
from nodedevice_agent.devicemanager.releasing import RELEASING_SETTLE_SECONDS
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import ENDS, GPU, NIC, Scenario, calls, is_saved, pod, published


class TestEnd:
    @pytest.mark.kubelet("behaviour 66", "weak spot 17")
    @pytest.mark.parametrize("how", ENDS)
    def test_all_devices_are_free_at_once_and_that_is_saved(self, how: str) -> None:
        ends = pod("p", gpu=1, nic=1)
        scenario = Scenario.with_plugin(1, nics=["n0"]).run(ends, pod("q", gpu=1))
        effects = scenario.ends(ends, how, pod("q", gpu=1))
        assert is_saved(effects, durable=False)
        assert published(effects) == {GPU, NIC}
        scenario.answer_all(effects)
        assert (scenario.held(), scenario.held(NIC)) == ({"q/main": ("d0",)}, {})

    def test_a_terminating_pod_keeps_its_devices(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1), pod("p", gpu=1, is_terminating=True))
        assert scenario.held() == {"p/main": ("d0",)}

    def test_a_pod_that_was_terminating_when_first_seen_gets_nothing(self) -> None:
        scenario = Scenario.with_plugin(2)
        assert calls(scenario.see(pod("p", gpu=1, is_terminating=True))) == []
        assert calls(scenario.lists(3)) == []
        assert scenario.reasons() == {}

    @pytest.mark.kubelet("behaviour 70", "scenario 88")
    def test_a_pod_that_had_ended_when_first_seen_gets_nothing(self) -> None:
        assert Scenario.with_plugin(2).see(pod("p", gpu=1, has_ended=True)) == []

    @pytest.mark.kubelet("weak spot 23")
    def test_a_held_device_that_is_no_longer_listed_counts_until_the_end(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
        scenario.lists(["d1"])
        seen = scenario.snapshot()
        assert (seen.total, seen.healthy, seen.allocated, seen.available) == (2, 1, 1, 1)
        scenario.gone("p")
        assert scenario.snapshot().total == 1

    @pytest.mark.kubelet("behaviour 40", "scenario 97")
    def test_an_unhealthy_held_device_keeps_its_pod(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        scenario.lists([Device("d0", healthy=False)])
        seen = scenario.snapshot()
        assert (seen.total, seen.healthy, seen.allocated, seen.available) == (1, 0, 1, 0)
        assert scenario.held() == {"p/main": ("d0",)}


class TestReleasing:
    """With a runtime that reports the end of containers, the end of the pod in the API is not enough."""

    def test_devices_are_free_only_when_the_runtime_reports_the_end(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1), pod("q", gpu=1))
        scenario.gone("p")
        seen = scenario.snapshot()
        assert (seen.allocated, seen.releasing, seen.available) == (0, 1, 0)
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        effects = scenario.happens("releasing.containers_ended", "p")
        assert is_saved(effects, durable=False)
        scenario.answer_all(effects)
        assert (scenario.held(), scenario.snapshot().releasing) == ({"q/main": ("d0",)}, 0)

    def test_the_end_of_containers_of_a_running_pod_frees_nothing(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert scenario.happens("releasing.containers_ended", "p") == []
        assert scenario.happens("releasing.containers_ended", "stranger") == []
        assert scenario.held() == {"p/main": ("d0",)}

    def test_a_repeated_report_is_published_once(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert scenario.see(pod("p", gpu=1, has_ended=True)) == []
        scenario.now += RELEASING_SETTLE_SECONDS / 2
        assert scenario.gone("p") == []
        assert scenario.passes(RELEASING_SETTLE_SECONDS / 2) == [Publish(GPU)]
        assert scenario.passes(3600) == []

    def test_containers_that_end_with_their_pod_are_published_once(self) -> None:
        """The API often reports the end slightly earlier than the runtime: the state in between is not published."""
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert published(scenario.gone("p")) == set()
        assert published(scenario.happens("releasing.containers_ended", "p")) == {GPU}

    def test_a_pod_that_requests_them_is_published_at_once(self) -> None:
        """The released devices become reserved: the Node's number does not change."""
        scenario = Scenario.with_plugin(2, waits_for_runtime=True).run(pod("p", gpu=2))
        scenario.gone("p")
        assert published(scenario.see(pod("q", gpu=2))) == {GPU}
        seen = scenario.snapshot()
        assert (seen.releasing, seen.reserved, seen.available) == (2, 2, 0)
        assert published(scenario.gone("q")) == {GPU}, "and when it goes again"
        assert scenario.snapshot().reserved == 0


def test_a_pod_that_is_in_the_api_again_is_shown_as_holding() -> None:
    scenario = RuntimeScenario.with_plugin(1).run(pod("p", gpu=1))
    scenario.start(scenario.create("p"), "p")
    scenario.gone("p")
    scenario.passes(60)
    assert scenario.snapshot().releasing == 1
    assert GPU in published(scenario.see(pod("p", gpu=1)))
    assert scenario.snapshot().releasing == 0


def test_all_that_a_list_of_pods_ends_is_shown() -> None:
    scenario = Scenario.with_plugin(1, nics=["n0"]).run(pod("gone", gpu=1), pod("ended", nic=1))
    assert published(scenario.happens("pod_events.synced", [pod("ended", nic=1, has_ended=True)])) == {GPU, NIC}
