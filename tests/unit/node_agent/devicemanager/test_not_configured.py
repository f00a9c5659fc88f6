"""Built-in plugins that were taken out of the configuration: their end is meant, so nothing waits for them."""

from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_agent.devicemanager.allocation.stored_responses import problem
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import is_settling

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, is_saved, pod, published, status

BUILT_IN, FOREIGN = PluginOptions(scope="built-in example.com/gpu"), PluginOptions()
GRACE_SECONDS = 300
GONE, STOPPED = (EndpointState.GONE, True), (EndpointState.STOPPED, False)
RUNNING, EXPIRED = (EndpointState.RUNNING, False), (EndpointState.GONE, False)


def configure(scenario: Scenario, *names: str) -> list[Any]:
    return scenario.happens("table.configured", lambda name, scope: name in names)


def serves(scenario: Scenario, devices: int = 2, endpoint: int = 1, options: PluginOptions = BUILT_IN) -> None:
    scenario.answer_all(scenario.plugin(devices, endpoint=endpoint, options=options))


def ends(scenario: Scenario, endpoint: int = 1) -> list[Any]:
    """It is taken out of the configuration, and ended. Returns the effects of that."""
    configure(scenario)
    return scenario.disconnect(endpoint=endpoint)


def with_built_in(devices: int = 2, **more: Any) -> Scenario:
    scenario = Scenario(**more)
    configure(scenario, GPU)
    serves(scenario, devices)
    return scenario


def state(scenario: Scenario) -> tuple[EndpointState, bool]:
    seen = scenario.snapshot()
    return seen.state, seen.is_not_configured


class TestItsEnd:
    def test_it_is_gone_as_soon_as_it_has_disconnected(self) -> None:
        scenario = with_built_in()
        assert configure(scenario) == []
        assert state(scenario) == RUNNING
        assert scenario.disconnect() == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert (state(scenario), scenario.snapshot().total) == (GONE, 0)
        assert scenario.manager.next_deadline() is None
        assert configure(scenario) == []

    def test_also_when_it_had_disconnected_before(self) -> None:
        scenario = with_built_in()
        scenario.disconnect()
        assert state(scenario) == STOPPED
        assert configure(scenario) == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert state(scenario) == GONE
        assert scenario.manager.next_deadline() is None

    @pytest.mark.parametrize("make", [with_built_in, Scenario], ids=["known before", "new"])
    def test_a_registration_that_was_under_way_is_not_waited_for(self, make: Callable[[], Scenario]) -> None:
        scenario = make()
        ends(scenario)
        serves(scenario, endpoint=2)
        scenario.disconnect(endpoint=2)
        assert state(scenario) == GONE

    def test_one_that_is_configured_is_waited_for(self) -> None:
        scenario = with_built_in()
        configure(scenario, GPU, NIC)
        scenario.disconnect()
        assert (state(scenario), scenario.registered()["reason"]) == (STOPPED, "EndpointStopped")
        scenario.passes(GRACE_SECONDS)
        assert (state(scenario), scenario.registered()["reason"]) == (EXPIRED, "EndpointGone")

    def test_the_scope_is_asked_for_too(self) -> None:
        """A resource of GPUs may have any name."""
        scenario = with_built_in()
        scenario.happens("table.configured", lambda name, scope: scope == BUILT_IN.scope)
        scenario.disconnect()
        assert state(scenario) == STOPPED


class TestRestart:
    def test_what_was_taken_out_meanwhile_settles_no_longer(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1)).restarted()
        assert is_settling(scenario.manager, GPU)
        assert published(configure(scenario)) == {GPU}
        assert not is_settling(scenario.manager, GPU)
        assert (state(scenario), scenario.snapshot().allocated) == (GONE, 1)

    @pytest.mark.parametrize("pods", [[], [pod("p", gpu=1)]])
    def test_what_had_ended_before_is_known(self, pods: list[Pod]) -> None:
        scenario = with_built_in().run(*pods)
        ends(scenario)
        scenario = scenario.restarted()
        configure(scenario)
        assert state(scenario) == GONE

    def test_what_a_foreign_plugin_served_settles_as_ever(self) -> None:
        scenario = Scenario.with_plugin(2, options=FOREIGN).restarted()
        assert configure(scenario) == []
        assert is_settling(scenario.manager, GPU)


class TestItsReplacement:
    """By another built-in plugin of the same resource, when the configuration changes."""

    def changed(self, options: PluginOptions = BUILT_IN, *returning: str) -> Scenario:
        scenario = Scenario.with_plugin(2, options=options)
        scenario.manager.table.configured(lambda name, scope: True, scenario.now, returning)
        return scenario

    def test_the_last_numbers_stay_until_it_lists(self) -> None:
        scenario = self.changed(BUILT_IN, GPU, NIC)
        scenario.disconnect()
        assert is_settling(scenario.manager, GPU)
        scenario.connect(endpoint=2, options=BUILT_IN)
        assert is_settling(scenario.manager, GPU)
        scenario.lists(3, endpoint=2)
        assert (is_settling(scenario.manager, GPU), scenario.snapshot().available) == (False, 3)

    def test_and_no_longer_than_ten_seconds(self) -> None:
        scenario = self.changed(BUILT_IN, GPU)
        scenario.disconnect()
        assert scenario.passes(9) == []
        assert published(scenario.passes(1)) == {GPU}
        assert (is_settling(scenario.manager, GPU), state(scenario)) == (False, STOPPED)

    @pytest.mark.parametrize(("options", "returning"), [(BUILT_IN, NIC), (FOREIGN, GPU)])
    def test_not_of_another_resource_nor_of_another_plugin(self, options: PluginOptions, returning: str) -> None:
        scenario = self.changed(options, returning)
        scenario.disconnect()
        assert not is_settling(scenario.manager, GPU)


class TestPods:
    def test_a_container_with_a_held_device_does_not_start(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1))
        (allocation,) = scenario.manager.book
        resource = scenario.manager.resources[GPU]
        assert problem(allocation, resource) == ""
        ends(scenario)
        assert problem(allocation, resource).startswith(
            f"{GPU} is not configured on this node any more: delete the pod"
        )

    def test_held_devices_stay_held_until_their_pod_ends(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1))
        assert is_saved(ends(scenario), durable=False)
        seen = scenario.snapshot()
        assert (seen.total, seen.allocated, seen.available) == (1, 1, 0)
        assert [(d.id, d.present, d.reason) for d in seen.devices] == [("d0", False, "NotConfigured")]
        assert set(scenario.manager.checkpoint().registered) == {GPU}
        assert not scenario.forgets(GPU)
        scenario.gone("p")
        assert scenario.snapshot().total == 0
        assert scenario.forgets(GPU)

    def test_a_pod_that_waits_has_the_reason(self) -> None:
        scenario = with_built_in(1).run(pod("p", gpu=1), pod("q", gpu=1))
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        ends(scenario)
        assert scenario.reasons() == {"q": "NotConfigured"}
        assert not scenario.forgets(GPU)


class TestWhoeverServesItNext:
    def test_a_foreign_plugin_ends_as_any_other(self) -> None:
        scenario = with_built_in()
        ends(scenario)
        serves(scenario, endpoint=2, options=FOREIGN)
        assert (state(scenario), scenario.snapshot().available) == (RUNNING, 2)
        scenario.disconnect(endpoint=2)
        assert (state(scenario), configure(scenario)) == (STOPPED, [])
        scenario.passes(GRACE_SECONDS)
        assert state(scenario) == EXPIRED

    @pytest.mark.parametrize("options", [BUILT_IN, FOREIGN])
    def test_what_was_shown_stays_until_it_lists(self, options: PluginOptions) -> None:
        """What a pod holds would be missing meanwhile, from a plugin that has not listed it yet."""
        scenario = with_built_in().run(pod("p", gpu=1))
        ends(scenario)
        configure(scenario, GPU)
        scenario.connect(endpoint=2, options=options)
        assert is_settling(scenario.manager, GPU)
        scenario.lists(2, endpoint=2)
        assert not is_settling(scenario.manager, GPU)
        assert [d.reason for d in scenario.snapshot().devices] == ["", ""]

    def test_configured_again_before_it_has_ended(self) -> None:
        """The one that ends disconnects after the new one has registered."""
        scenario = with_built_in()
        configure(scenario)
        configure(scenario, GPU)
        serves(scenario, endpoint=2)
        scenario.disconnect(endpoint=1)
        assert (state(scenario), scenario.snapshot().available) == (RUNNING, 2)

    @pytest.mark.parametrize("ends_first", [1, 2])
    def test_another_plugin_that_is_connected_keeps_the_resource(self, ends_first: int) -> None:
        """Registered before the built-in one, or after it."""
        options = {ends_first: BUILT_IN, 3 - ends_first: FOREIGN}
        scenario = Scenario()
        for endpoint in (1, 2):
            serves(scenario, endpoint + 1, endpoint, options[endpoint])
        ends(scenario, endpoint=ends_first)
        assert (state(scenario), scenario.snapshot().available) == (RUNNING, 4 - ends_first)
        scenario.disconnect(endpoint=3 - ends_first)
        assert state(scenario) == STOPPED


class TestStatus:
    def test_the_reason_is_its_own(self) -> None:
        scenario = with_built_in()
        ends(scenario)
        found, shown = scenario.registered(), status(scenario, {}, "2026-01-01T12:00:00Z")
        assert (found["status"], found["reason"]) == ("False", "NotConfigured")
        assert "name it in a NodeDeviceConfig that selects this node" in found["message"]
        assert shown["endpoint"]["state"] == "Gone"
        healthy = next(c for c in shown["conditions"] if c["type"] == "Healthy")
        assert (healthy["reason"], healthy["message"]) == ("NoDevices", "no device plugin serves this resource")
