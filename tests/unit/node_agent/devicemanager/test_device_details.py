"""Details that a plugin reports beyond v1beta1, in the status of the NodeDevice."""

from nodedevice_agent.devicemanager.devices import Device, accept

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario
from tests.unit.node_agent.devicemanager.scenario import status as status_of
from tests.unit.node_agent.kube import crd_rules

WELL = Device("a", attributes=(("model", "H100"), ("pciBusID", "0000:1b:00.0")))
BROKEN = Device("b", False, (), "Xid79", "Xid 79: reset it", (("model", "H100"),))


def shown(scenario: Scenario) -> dict[str, object]:
    found: dict[str, object] = status_of(scenario, {}, "2026-01-05T00:00:00Z")
    assert crd_rules.problems(found) == []
    return found


def healthy_condition(scenario: Scenario) -> dict[str, str]:
    conditions = shown(scenario)["conditions"]
    assert isinstance(conditions, list)
    (found,) = (c for c in conditions if c["type"] == "Healthy")
    return dict(found)


def test_attributes_and_reasons_of_devices() -> None:
    scenario = Scenario.with_plugin([WELL, BROKEN])
    devices = shown(scenario)["devices"]
    assert isinstance(devices, list)
    first, second = devices
    assert first["attributes"] == {"model": "H100", "pciBusID": "0000:1b:00.0"}
    assert "reason" not in first
    assert (second["reason"], second["message"]) == ("Xid79", "Xid 79: reset it")
    assert "b (Xid79)" in healthy_condition(scenario)["message"]


def test_the_managers_own_reason_comes_before_the_plugins() -> None:
    scenario = Scenario.with_plugin([BROKEN])
    scenario.disconnect()
    (device,) = scenario.snapshot().devices
    assert device.reason == "EndpointStopped"


def test_the_plugins_message_is_in_the_condition() -> None:
    scenario = Scenario()
    scenario.connect()
    scenario.happens("listed", GPU, 1, accept([], "the driver does not fit: reboot"))
    assert healthy_condition(scenario)["reason"] == "NoDevices"
    assert healthy_condition(scenario)["message"].endswith("lists no devices; the driver does not fit: reboot")
    scenario.happens("listed", GPU, 1, accept([Device("a")], "a GPU cannot be named"))
    assert healthy_condition(scenario)["message"] == "all 1 devices are healthy; a GPU cannot be named"
    scenario.lists([Device("a")])
    assert healthy_condition(scenario)["message"] == "all 1 devices are healthy"


def test_a_message_that_changes_is_published() -> None:
    scenario = Scenario.with_plugin([BROKEN])
    assert scenario.lists([BROKEN]) == []
    assert scenario.lists([Device("b", False, (), "Xid48", "another")])
