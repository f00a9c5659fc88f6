"""Several device plugins that serve one resource: reported while more than one of them is connected."""

import pytest
from nodedevice_agent.devicemanager.resources.connections import PluginOptions

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, published


def connected(*sockets: str) -> Scenario:
    scenario = Scenario()
    for endpoint, socket in enumerate(sockets, 1):
        scenario.manager.connected(GPU, endpoint, PluginOptions(), scenario.now, f"/plugins/{socket}")
        scenario.lists(2, endpoint=endpoint)
    return scenario


@pytest.mark.parametrize("goes", [1, 2])
def test_two_are_reported_until_one_has_gone(goes: int) -> None:
    scenario = connected("a.sock", "b.sock")
    found = scenario.registered()
    assert (found["status"], found["reason"]) == ("True", "SeveralPlugins")
    assert found["message"].endswith("stop all but one: /plugins/a.sock, /plugins/b.sock")
    assert published(scenario.disconnect(endpoint=goes)) == {GPU}
    assert scenario.registered()["reason"] == "EndpointRunning"


def test_the_newest_is_named_last() -> None:
    assert connected("a.sock", "b.sock", "a.sock").snapshot().sockets == ("/plugins/b.sock", "/plugins/a.sock")


def test_a_plugin_that_registers_again_is_one() -> None:
    scenario = connected("a.sock", "a.sock")
    assert scenario.registered()["reason"] == "EndpointRunning"
    assert scenario.disconnect(endpoint=1) == []


def test_one_that_answers_again_with_the_list_of_another_is_shown() -> None:
    scenario = connected("a.sock", "b.sock")
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    assert scenario.registered()["reason"] == "EndpointRunning"
    scenario.manager.connected(GPU, 1, PluginOptions(), scenario.now, "/plugins/a.sock")
    effects = scenario.manager.settle(scenario.now)
    assert (published(effects), scenario.registered()["reason"]) == ({GPU}, "SeveralPlugins")
