"""Several device plugins that serve one resource: reported while more than one of them is connected."""

from typing import Any

from nodedevice_agent.devicemanager.resources.connections import PluginOptions

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, published, status


def connect(scenario: Scenario, endpoint: int, socket: str) -> None:
    scenario.manager.connected(GPU, endpoint, PluginOptions(), scenario.now, f"/plugins/{socket}")
    scenario.lists(2, endpoint=endpoint)


def registered(scenario: Scenario) -> dict[str, Any]:
    (found,) = (c for c in status(scenario, {}, "2026-01-01T12:00:00Z")["conditions"] if c["type"] == "Registered")
    return dict(found)


def test_two_are_reported_until_one_has_gone() -> None:
    for goes in (1, 2):
        scenario = Scenario()
        connect(scenario, 1, "a.sock")
        assert registered(scenario)["reason"] == "EndpointRunning"
        connect(scenario, 2, "b.sock")
        found = registered(scenario)
        assert (found["status"], found["reason"]) == ("True", "SeveralPlugins")
        assert found["message"].endswith("stop all but one: /plugins/a.sock, /plugins/b.sock")
        assert published(scenario.disconnect(endpoint=goes)) == {GPU}
        assert registered(scenario)["reason"] == "EndpointRunning"


def test_the_newest_is_named_last() -> None:
    scenario = Scenario()
    for endpoint, socket in enumerate(("a.sock", "b.sock", "a.sock"), start=1):
        connect(scenario, endpoint, socket)
    assert scenario.snapshot().sockets == ("/plugins/b.sock", "/plugins/a.sock")


def test_a_plugin_that_registers_again_is_one() -> None:
    scenario = Scenario()
    connect(scenario, 1, "a.sock")
    connect(scenario, 2, "a.sock")
    assert registered(scenario)["reason"] == "EndpointRunning"
    assert scenario.disconnect(endpoint=1) == []


def test_one_that_answers_again_with_the_list_of_another_is_shown() -> None:
    scenario = Scenario()
    connect(scenario, 1, "a.sock")
    connect(scenario, 2, "b.sock")
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    assert registered(scenario)["reason"] == "EndpointRunning"
    scenario.manager.connected(GPU, 1, PluginOptions(), scenario.now, "/plugins/a.sock")
    effects = scenario.manager.settle(scenario.now)
    assert (published(effects), registered(scenario)["reason"]) == ({GPU}, "SeveralPlugins")
