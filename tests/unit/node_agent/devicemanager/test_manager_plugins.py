"""Plugins register, list, disconnect and return: which devices count, which connection is used, when a resource is gone."""

from typing import Any

import pytest
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import is_settling

from tests.unit.node_agent.devicemanager.pods import GPU, NIC, pod
from tests.unit.node_agent.devicemanager.scenario import WITH_PREFERENCES, Scenario, calls, preferred_calls, published

GRACE_SECONDS = 300


def numbers(scenario: Scenario, name: str = GPU) -> tuple[int, int, int]:
    seen = scenario.snapshot(name)
    return seen.total, seen.healthy, seen.available


def with_gone_plugin(*pods: Pod, **options: Any) -> Scenario:
    """These have got devices of a plugin that is gone by now."""
    scenario = Scenario.with_plugin(1, **options).run(*pods)
    scenario.disconnect()
    scenario.passes(GRACE_SECONDS)
    return scenario


class TestRegistration:
    @pytest.mark.kubelet("behaviour 15", "scenario 99")
    def test_a_new_resource_is_saved_and_published_and_has_no_device_yet(self) -> None:
        scenario = Scenario()
        assert scenario.connect() == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert (scenario.snapshot().state, scenario.snapshot().is_live) == (EndpointState.RUNNING, False)
        assert numbers(scenario) == (0, 0, 0)

    @pytest.mark.kubelet("behaviour 18")
    def test_the_same_list_again_changes_nothing(self) -> None:
        scenario = Scenario.with_plugin(2)
        assert scenario.lists(2) == []
        assert scenario.lists(["d1", "d0"]) == []

    def test_a_list_of_an_unknown_connection_is_ignored(self) -> None:
        scenario = Scenario()
        assert scenario.lists(["d0"]) == []
        scenario.plugin(["d0"])
        assert scenario.lists(["d1"], endpoint=7) == []
        assert scenario.disconnect(endpoint=7) == []
        assert scenario.disconnect(NIC) == []
        assert numbers(scenario) == (1, 1, 1)

    @pytest.mark.kubelet("scenario 10")
    def test_resources_are_independent(self) -> None:
        scenario = Scenario.with_plugin(3, nics=["d0"])
        scenario.disconnect(NIC, 2)
        assert (numbers(scenario), numbers(scenario, NIC)) == ((3, 3, 3), (1, 0, 0))

    @pytest.mark.kubelet("behaviour 27", "scenario 24")
    def test_a_request_for_an_unknown_resource_is_reported_once_and_served_when_a_plugin_registers(self) -> None:
        scenario = Scenario()
        (effect,) = scenario.see(pod("p", gpu=1))
        assert (getattr(effect, "pod", ""), getattr(effect, "resource_name", "")) == ("default/p", GPU)
        assert scenario.see(pod("p", gpu=1)) == []
        assert scenario.connect(NIC, 2) == [SaveCheckpoint(durable=False), Publish(NIC)]
        assert calls(scenario.connect()) == []
        assert scenario.reasons() == {"p": "DeviceListPending"}
        scenario.answer_all(scenario.lists(["d0"]))
        assert scenario.held() == {"p/main": ("d0",)}


class TestSecondRegistration:
    def test_the_old_list_stays_until_the_new_plugin_lists(self) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.connect(endpoint=2)
        assert numbers(scenario) == (2, 2, 2)
        scenario.lists(["d9"], endpoint=2)
        assert numbers(scenario) == (1, 1, 1)

    @pytest.mark.kubelet("scenario 4")
    def test_calls_go_to_the_newest_connection(self) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.plugin(2, endpoint=2, options=WITH_PREFERENCES)
        (query,) = preferred_calls(scenario.see(pod("p", gpu=1)))
        (call,) = calls(scenario.prefer(query))
        assert (query.endpoint, call.endpoint) == (2, 2)

    @pytest.mark.kubelet("behaviour 12", "behaviour 13", "weak spot 7")
    @pytest.mark.parametrize("how", ["it lists", "it ends"])
    def test_an_old_connection_changes_nothing(self, how: str) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.plugin(2, endpoint=2)
        assert (scenario.lists([], endpoint=1) if how == "it lists" else scenario.disconnect(endpoint=1)) == []
        assert numbers(scenario) == (2, 2, 2)
        assert scenario.manager.next_deadline() is None

    def test_an_older_connection_takes_over_when_the_newest_ends(self) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.plugin(["d9"], endpoint=2, options=WITH_PREFERENCES)
        assert published(scenario.disconnect(endpoint=2)) == {GPU}
        assert (numbers(scenario), scenario.snapshot().options) == ((2, 2, 2), PluginOptions())
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        assert call.endpoint == 1

    def test_the_current_list_at_the_disconnect_is_kept(self) -> None:
        scenario = Scenario.with_plugin(["old"])
        scenario.plugin(["new-1", "new-2"], endpoint=2)
        for endpoint in (2, 1):
            scenario.disconnect(endpoint=endpoint)
        assert scenario.manager.resources[GPU].listed.ids == ("old",)
        assert scenario.snapshot().total == 1


class TestStop:
    @pytest.mark.kubelet("behaviour 14", "scenario 13", "scenario 40", "scenario 100")
    def test_all_devices_of_a_stopped_plugin_are_unhealthy_and_counted(self) -> None:
        scenario = Scenario.with_plugin(2)
        assert scenario.disconnect() == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert (numbers(scenario), scenario.snapshot().state) == ((2, 0, 0), EndpointState.STOPPED)

    @pytest.mark.kubelet("behaviour 16", "scenario 12")
    def test_pods_are_pending_while_it_is_stopped_and_served_when_it_is_back(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.disconnect()
        assert calls(scenario.see(pod("p", gpu=1))) == []
        assert scenario.reasons() == {"p": "EndpointStopped"}
        scenario.answer_all(scenario.plugin(["d0"], endpoint=2))
        assert (scenario.held(), scenario.reasons()) == ({"p/main": ("d0",)}, {})

    @pytest.mark.kubelet("behaviour 23", "scenario 11", "scenario 101")
    def test_grace_ends_after_five_minutes_as_an_event(self) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.disconnect()
        assert scenario.manager.next_deadline() == scenario.now + GRACE_SECONDS
        assert scenario.passes(GRACE_SECONDS - 1) == []
        assert scenario.snapshot().state is EndpointState.STOPPED
        assert scenario.passes(1) == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert (numbers(scenario), scenario.snapshot().state) == ((0, 0, 0), EndpointState.GONE)
        assert scenario.manager.next_deadline() is None
        assert scenario.passes(GRACE_SECONDS) == []

    @pytest.mark.kubelet("scenario 40")
    def test_a_gone_resource_is_in_the_checkpoint_only_while_a_device_is_held(self) -> None:
        scenario = with_gone_plugin(pod("p", gpu=1))
        assert (scenario.snapshot().total, scenario.snapshot().allocated) == (1, 1)
        assert set(scenario.manager.checkpoint().registered) == {GPU}
        scenario.gone("p")
        assert set(scenario.manager.checkpoint().registered) == set()

    def test_a_restart_knows_a_gone_resource_so_that_pods_that_ask_for_it_are_shown(self) -> None:
        scenario = with_gone_plugin().restarted()
        assert scenario.snapshot().state is EndpointState.GONE
        assert not is_settling(scenario.manager, GPU)
        assert published(scenario.see(pod("p", gpu=1))) == {GPU}
        assert scenario.reasons() == {"p": "EndpointStopped"}
        assert scenario.manager.checkpoint().gone == (GPU,)
        scenario.answer_all(scenario.plugin(["d0"]))
        assert scenario.held() == {"p/main": ("d0",)}
        assert scenario.manager.checkpoint().gone == ()

    @pytest.mark.kubelet("weak spot 27")
    def test_a_connected_plugin_without_a_list_counts_nothing_as_healthy(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.disconnect()
        scenario.connect(endpoint=2)
        assert numbers(scenario) == (1, 0, 0)
        assert calls(scenario.see(pod("p", gpu=1))) == []
        assert scenario.reasons() == {"p": "DeviceListPending"}


class TestCordons:
    @pytest.mark.parametrize("cordons", [["*"], ["all"], ["*", "all"], ["all", "d0"], ["d0", "d1", "d2"]], ids=",".join)
    def test_every_device_is_cordoned_until_the_cordon_is_removed(self, cordons: list[str]) -> None:
        """`*` and `all` mean the same, also beside IDs of single devices."""
        scenario = Scenario.with_plugin(3).run(pod("p", gpu=1))
        scenario.cordon(GPU, cordons)
        seen = scenario.snapshot()
        assert (seen.total, seen.healthy, seen.cordoned, seen.allocated, seen.available) == (3, 3, 3, 1, 0)
        assert calls(scenario.see(pod("q", gpu=1))) == []
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        scenario.answer_all(scenario.cordon(GPU, []))
        assert scenario.held() == {"p/main": ("d0",), "q/main": ("d1",)}

    def test_a_device_that_is_named_all_is_cordoned_with_all_the_others(self) -> None:
        scenario = Scenario.with_plugin([Device("all"), Device("d0")])
        scenario.cordon(GPU, ["d0"])
        assert scenario.snapshot().available == 1
        scenario.cordon(GPU, ["all"])
        assert scenario.snapshot().available == 0


class TestForget:
    def test_a_resource_is_forgotten_once_its_plugin_is_gone_and_no_pod_holds_it_or_asks_for_it(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("a", gpu=1))
        assert scenario.forgets(GPU) is False
        scenario.disconnect()
        assert not scenario.forgets(GPU)
        scenario.passes(GRACE_SECONDS)
        assert not scenario.forgets(GPU)
        scenario.see(pod("b", gpu=1))
        scenario.gone("a")
        assert not scenario.forgets(GPU)
        scenario.gone("b")
        assert scenario.forgets(GPU)
        assert (scenario.forgets(GPU), scenario.manager.resources) == (True, {})

    def test_what_was_to_be_published_of_it_is_not(self) -> None:
        """The release of its last device, which was a moment ago."""
        scenario = with_gone_plugin(pod("a", gpu=1), waits_for_runtime=True)
        scenario.gone("a")
        scenario.happens("releasing.containers_ended", "a")
        assert scenario.forgets(GPU)
        assert (scenario.manager.next_deadline(), scenario.passes(60)) == (None, [])
