"""A plugin lists other files for a held device than it answered: it is asked again before a container starts with another's."""

import pytest
from nodedevice_agent.devicemanager.allocation.allocations import without_responses
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.runtime.injection import Grant

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, calls, is_saved, pod, with_edits


def dongle(device_id: str, files: str) -> Device:
    return Device(device_id, attributes=(("files", files),) if files else ())


def answer(scenario: RuntimeScenario, call: CallAllocate, *paths: str) -> bool:
    """Whether the answer is saved before it is used."""
    edits = ContainerEdits(devices=tuple(DeviceFile(path, path, "rw") for path in paths))
    effects = scenario.happens("allocated", call.ticket, AllocateResponse(b"files", edits))
    return is_saved(effects, durable=True)


def given(scenario: RuntimeScenario) -> set[str]:
    decision = scenario.ask("p")
    assert isinstance(decision, Grant), decision
    return {device.host_path for device in decision.edits.devices}


@pytest.fixture
def held() -> RuntimeScenario:
    """A pod has the first of two dongles."""
    scenario = RuntimeScenario()
    scenario.sync()
    scenario.plugin([dongle("a", "/dev/ttyUSB0"), dongle("b", "/dev/ttyUSB1")])
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    assert call.device_ids == ("a",)
    answer(scenario, call, "/dev/ttyUSB0")
    assert given(scenario) == {"/dev/ttyUSB0"}
    return scenario


def test_a_device_that_is_back_under_another_name(held: RuntimeScenario) -> None:
    assert calls(held.lists([])) == []
    assert calls(held.lists([dongle("b", "/dev/ttyUSB0")])) == []
    (call,) = calls(held.lists([dongle("a", "/dev/ttyUSB1"), dongle("b", "/dev/ttyUSB0")]))
    assert (call.device_ids, call.pod_uid) == (("a",), "p")
    refusal = held.refusal("p")
    assert "is outdated" in refusal.message
    assert refusal.is_temporary
    assert answer(held, call, "/dev/ttyUSB1")
    assert given(held) == {"/dev/ttyUSB1"}
    assert held.held() == {"p/main": ("a",)}


@pytest.mark.parametrize(
    "files",
    [
        pytest.param("/dev/ttyUSB0", id="the same"),
        pytest.param("/dev/hidraw3 /dev/ttyUSB0", id="one more"),
        pytest.param("", id="none are listed"),
        pytest.param("/dev/ttyUSB7 ".ljust(256, "x"), id="the list is cut off"),
    ],
)
def test_an_answer_that_is_right_stays(held: RuntimeScenario, files: str) -> None:
    assert calls(held.lists([dongle("a", files)])) == []
    assert given(held) == {"/dev/ttyUSB0"}


def test_never_where_a_second_call_is_forbidden() -> None:
    scenario = RuntimeScenario(allocate_retry={GPU: "never"})
    scenario.sync()
    scenario.plugin([dongle("a", "/dev/ttyUSB0")])
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    answer(scenario, call, "/dev/ttyUSB0")
    assert calls(scenario.lists([dongle("a", "/dev/ttyUSB1")])) == []
    assert given(scenario) == {"/dev/ttyUSB0"}


def test_after_a_boot_the_plugin_is_asked_first(held: RuntimeScenario) -> None:
    """No container starts with the file of before meanwhile."""
    kept = with_edits(held.manager.checkpoint())
    after = RuntimeScenario(without_responses(kept, {GPU}))
    after.sync()
    after.see(pod("p", gpu=1))
    assert after.refusal("p")
    (call,) = calls(after.plugin([dongle("b", "/dev/ttyUSB0"), dongle("a", "/dev/ttyUSB1")]))
    assert call.device_ids == ("a",)
    answer(after, call, "/dev/ttyUSB1")
    assert given(after) == {"/dev/ttyUSB1"}
    assert without_responses(kept, {"example.com/other"}) == kept
