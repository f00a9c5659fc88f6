"""Built-in plugins that were taken out of the configuration: their end is meant, so nothing waits for them."""

from typing import Any

import pytest
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resources.resource import EndpointState, PluginOptions
from nodedevice_agent.devicemanager.snapshot import is_settling

from tests.unit.node_agent.devicemanager.scenario import (
    GPU,
    NIC,
    Scenario,
    calls,
    is_saved,
    pod,
    published,
    status,
)

BUILT_IN, FOREIGN = "/plugins/gpu-0123.sock", "/plugins/vendor.sock"
NOW = "2026-01-01T12:00:00Z"
GRACE_SECONDS = 300


def serves(scenario: Scenario, devices: int = 2, endpoint: int = 1, socket: str = BUILT_IN) -> None:
    """A plugin at that socket registers and lists."""
    options = PluginOptions()
    scenario.answer_all(scenario.manager.connected(GPU, endpoint, options, scenario.now, socket))
    scenario.answer_all(scenario.lists(devices, endpoint=endpoint))


def ends(scenario: Scenario, endpoint: int = 1) -> None:
    """As the agent ends it."""
    scenario.happens("not_configured", GPU, BUILT_IN)
    scenario.disconnect(endpoint=endpoint)
    scenario.happens("not_configured", GPU, BUILT_IN)


def with_built_in(devices: int = 2, **options: Any) -> Scenario:
    scenario = Scenario(**options)
    serves(scenario, devices)
    return scenario


def state(scenario: Scenario) -> tuple[EndpointState, bool]:
    seen = scenario.snapshot()
    return seen.state, seen.is_not_configured


GONE = (EndpointState.GONE, True)


def registered(scenario: Scenario) -> dict[str, Any]:
    (found,) = (c for c in status(scenario, {}, NOW)["conditions"] if c["type"] == "Registered")
    return dict(found)


class TestItsEnd:
    def test_it_is_gone_as_soon_as_it_has_disconnected(self) -> None:
        scenario = with_built_in()
        assert scenario.happens("not_configured", GPU, BUILT_IN) == []
        assert state(scenario) == (EndpointState.RUNNING, False)
        effects = scenario.disconnect()
        assert effects == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert state(scenario) == GONE
        assert scenario.snapshot().total == 0
        assert scenario.manager.next_deadline() is None

    def test_also_when_it_had_disconnected_before(self) -> None:
        scenario = with_built_in()
        scenario.disconnect()
        effects = scenario.happens("not_configured", GPU, BUILT_IN)
        assert effects == [SaveCheckpoint(durable=False), Publish(GPU)]
        assert state(scenario) == GONE
        assert scenario.manager.next_deadline() is None
        assert scenario.happens("not_configured", GPU, BUILT_IN) == []

    def test_also_when_its_grace_period_is_over(self) -> None:
        scenario = with_built_in()
        scenario.disconnect()
        scenario.passes(GRACE_SECONDS)
        assert state(scenario) == (EndpointState.GONE, False)
        assert published(scenario.happens("not_configured", GPU, BUILT_IN)) == {GPU}
        assert state(scenario) == GONE

    def test_a_list_that_comes_before_its_end_changes_nothing(self) -> None:
        scenario = with_built_in()
        scenario.happens("not_configured", GPU, BUILT_IN)
        scenario.lists(3)
        scenario.disconnect()
        assert state(scenario) == GONE

    def test_a_registration_that_was_under_way_is_not_waited_for(self) -> None:
        scenario = with_built_in()
        scenario.happens("not_configured", GPU, BUILT_IN)
        scenario.disconnect()
        scenario.manager.connected(GPU, 2, PluginOptions(), scenario.now, BUILT_IN)
        scenario.disconnect(endpoint=2)
        assert state(scenario) == GONE

    def test_an_unknown_resource_is_none(self) -> None:
        scenario = Scenario()
        assert scenario.happens("not_configured", NIC, BUILT_IN) == []
        assert scenario.manager.resources == {}

    def test_after_a_restart_it_settles_no_longer(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1)).restarted()
        assert is_settling(scenario.manager, GPU)
        assert published(scenario.happens("not_configured", GPU, BUILT_IN)) == {GPU}
        assert not is_settling(scenario.manager, GPU)
        assert (state(scenario), scenario.snapshot().allocated) == (GONE, 1)

    def test_its_disconnection_shortly_after_a_restart_is_final(self) -> None:
        scenario = with_built_in().restarted()
        serves(scenario)
        ends(scenario)
        assert not is_settling(scenario.manager, GPU)
        assert state(scenario) == GONE


class TestPods:
    def test_held_devices_stay_held_until_their_pod_ends(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1))
        ends(scenario)
        seen = scenario.snapshot()
        assert (seen.total, seen.allocated, seen.available) == (1, 1, 0)
        assert [(d.id, d.present, d.reason) for d in seen.devices] == [("d0", False, "NotConfigured")]
        assert not scenario.manager.forget(GPU)
        scenario.gone("p")
        assert scenario.snapshot().total == 0
        assert scenario.manager.forget(GPU)

    def test_a_pod_that_waits_has_the_reason(self) -> None:
        scenario = with_built_in(1).run(pod("p", gpu=1), pod("q", gpu=1))
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        ends(scenario)
        assert scenario.reasons() == {"q": "NotConfigured"}
        assert not scenario.manager.forget(GPU)

    def test_also_where_the_plugin_was_away_already(self) -> None:
        scenario = with_built_in()
        scenario.disconnect()
        scenario.see(pod("q", gpu=1))
        assert scenario.reasons() == {"q": "EndpointStopped"}
        scenario.happens("not_configured", GPU, BUILT_IN)
        assert scenario.reasons() == {"q": "NotConfigured"}

    def test_it_gets_a_device_when_the_resource_comes_back(self) -> None:
        scenario = with_built_in(2).run(pod("p", gpu=1))
        ends(scenario)
        assert calls(scenario.see(pod("q", gpu=1))) == []
        serves(scenario, endpoint=2)
        assert scenario.held() == {"p/main": ("d0",), "q/main": ("d1",)}
        assert state(scenario) == (EndpointState.RUNNING, False)


class TestWhoeverServesItNext:
    @pytest.mark.parametrize("socket", [BUILT_IN, FOREIGN])
    def test_its_end_is_as_any_other(self, socket: str) -> None:
        scenario = with_built_in()
        ends(scenario)
        serves(scenario, endpoint=2, socket=socket)
        assert (state(scenario), scenario.snapshot().available) == ((EndpointState.RUNNING, False), 2)
        scenario.disconnect(endpoint=2)
        assert state(scenario) == (EndpointState.STOPPED, False)
        scenario.passes(GRACE_SECONDS)
        assert state(scenario) == (EndpointState.GONE, False)

    def test_another_plugin_that_is_connected_keeps_the_resource(self) -> None:
        scenario = with_built_in()
        serves(scenario, 3, endpoint=2, socket=FOREIGN)
        ends(scenario)
        assert (state(scenario), scenario.snapshot().available) == ((EndpointState.RUNNING, False), 3)
        scenario.disconnect(endpoint=2)
        assert state(scenario) == (EndpointState.STOPPED, False)

    def test_one_that_has_come_between_its_mark_and_its_end_keeps_it_too(self) -> None:
        scenario = with_built_in()
        scenario.happens("not_configured", GPU, BUILT_IN)
        serves(scenario, 3, endpoint=2, socket=FOREIGN)
        scenario.disconnect()
        scenario.happens("not_configured", GPU, BUILT_IN)
        assert (state(scenario), scenario.snapshot().available) == ((EndpointState.RUNNING, False), 3)

    def test_configured_again_before_it_has_ended(self) -> None:
        """The one that ends disconnects after the new one has registered."""
        scenario = with_built_in()
        scenario.happens("not_configured", GPU, BUILT_IN)
        serves(scenario, endpoint=2)
        scenario.disconnect(endpoint=1)
        assert (state(scenario), scenario.snapshot().available) == ((EndpointState.RUNNING, False), 2)
        scenario.disconnect(endpoint=2)
        assert state(scenario) == (EndpointState.STOPPED, False)


class TestStatus:
    def test_the_reason_is_its_own(self) -> None:
        scenario = with_built_in()
        ends(scenario)
        found = registered(scenario)
        assert (found["status"], found["reason"]) == ("False", "NotConfigured")
        assert "name it in a NodeDeviceConfig that selects this node" in found["message"]
        assert status(scenario, {}, NOW)["endpoint"]["state"] == "Gone"
        healthy = next(c for c in status(scenario, {}, NOW)["conditions"] if c["type"] == "Healthy")
        assert (healthy["reason"], healthy["message"]) == ("NoDevices", "no device plugin serves this resource")

    def test_while_it_is_stopped_for_another_reason_it_is_stopped(self) -> None:
        scenario = with_built_in()
        scenario.disconnect()
        assert registered(scenario)["reason"] == "EndpointStopped"
        scenario.passes(GRACE_SECONDS)
        assert registered(scenario)["reason"] == "EndpointGone"

    def test_what_is_held_is_saved(self) -> None:
        scenario = with_built_in().run(pod("p", gpu=1))
        scenario.happens("not_configured", GPU, BUILT_IN)
        assert is_saved(scenario.disconnect(), durable=False)
        assert set(scenario.manager.checkpoint().registered) == {GPU}
