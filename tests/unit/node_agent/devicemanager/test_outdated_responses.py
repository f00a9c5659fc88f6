"""A stored response of a built-in plugin is used only while its devices are listed with the files that it names."""

from typing import Any

import pytest
from msgspec import structs
from nodedevice_agent.devicemanager.allocation.responses_after_boot import after_boot
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.runtime.injection import Grant, Refusal

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, app, calls, is_saved, pod

OWN = PluginOptions(scope=f"{BUILT_IN}test")
FIRST, SECOND, THIRD = ("/dev/ttyUSB0", "c188:0"), ("/dev/ttyUSB1", "c188:1"), ("/dev/ttyUSB2", "c188:2")


def dongle(device_id: str, *files: tuple[str, str], is_own: bool = True) -> Device:
    """is_own: as a built-in plugin lists it."""
    return (
        Device(device_id, files=files, identity=tuple(number for _, number in files)) if is_own else Device(device_id)
    )


def answer(scenario: RuntimeScenario, effects: list[Effect], *files: tuple[str, str]) -> bool:
    """Whether the answer is saved before it is used."""
    (call,) = calls(effects)
    response = AllocateResponse(b"", ContainerEdits(devices=tuple(DeviceFile(path, path, "rw") for path, _ in files)))
    return is_saved(scenario.happens("allocated", call.ticket, response), durable=True)


def edits(scenario: RuntimeScenario) -> ContainerEdits:
    decision = scenario.ask("p")
    assert isinstance(decision, Grant), decision
    return decision.edits


def given(scenario: RuntimeScenario) -> set[str]:
    return {device.host_path for device in edits(scenario).devices}


def holding(options: PluginOptions = OWN, **more: Any) -> RuntimeScenario:
    """A pod has the first of two dongles."""
    scenario = RuntimeScenario.synced(**more)
    is_own = bool(options.scope)
    scenario.plugin([dongle("a", FIRST, is_own=is_own), dongle("b", SECOND, is_own=is_own)], options=options)
    effects = scenario.see(pod("p", gpu=1))
    assert [call.device_ids for call in calls(effects)] == [("a",)]
    answer(scenario, effects, FIRST)
    assert given(scenario) == {FIRST[0]}
    return scenario


def stored(scenario: RuntimeScenario, **change: Any) -> Checkpoint:
    """Its checkpoint. change: what each allocation in it has otherwise."""
    found = scenario.manager.checkpoint()
    return structs.replace(found, allocations=tuple(structs.replace(a, **change) for a in found.allocations))


def restarted(checkpoint: Checkpoint, **more: Any) -> RuntimeScenario:
    """Before any plugin has connected."""
    after = RuntimeScenario.synced(checkpoint, **more)
    after.see(pod("p", gpu=1))
    return after


def test_another_spelling_of_a_file_is_the_same_file() -> None:
    """As a setting may have it; the response is in normal form."""
    scenario = RuntimeScenario.synced()
    scenario.plugin([dongle("a", ("/dev/.//ttyUSB0", "c188:0"))], options=OWN)
    answer(scenario, scenario.see(pod("p", gpu=1)), FIRST)
    assert given(scenario) == {FIRST[0]}
    assert [allocation.files for allocation in scenario.manager.book] == [(FIRST,)]


def test_a_device_that_is_back_under_another_name() -> None:
    held = holding()
    for listed in ([], [dongle("b", FIRST)]):
        assert calls(held.lists(listed)) == []
        assert "device a of example.com/gpu is not there" in held.refusal("p").message
    effects = held.lists([dongle("a", SECOND), dongle("b", FIRST)])
    (call,) = calls(effects)
    assert (call.device_ids, call.pod_uid) == (("a",), "p")
    refusal = held.refusal("p")
    assert "is outdated" in refusal.message
    assert refusal.is_temporary
    assert answer(held, effects, SECOND)
    assert given(held) == {SECOND[0]}
    assert held.held() == {"p/main": ("a",)}


def test_an_answer_without_device_files_stays_where_the_list_has_some() -> None:
    """A GPU that an older agent gave by its UUID alone: it is right whatever the files are."""
    held = RuntimeScenario.synced()
    held.plugin([dongle("a")], options=OWN)
    (call,) = calls(held.see(pod("p", gpu=1)))
    held.happens("allocated", call.ticket, AllocateResponse(b"uuid", ContainerEdits({"VISIBLE": "a"})))
    assert calls(held.lists([dongle("a", FIRST)])) == []
    assert edits(held).envs == {"VISIBLE": "a"}


@pytest.mark.parametrize(
    "files",
    [
        pytest.param((FIRST,), id="the same"),
        pytest.param((("/dev/hidraw3", "c240:3"), FIRST), id="one more"),
        pytest.param(((FIRST[0], "c188:7"),), id="a link that leads to another number"),
    ],
)
def test_an_answer_that_is_right_stays(files: tuple[tuple[str, str], ...]) -> None:
    held = holding()
    assert calls(held.lists([dongle("a", *files)])) == []
    assert given(held) == {FIRST[0]}


@pytest.mark.parametrize(("is_held", "later"), [(False, ()), (True, ()), (False, (app("z", 0, nic=1),))])
def test_a_response_to_a_call_before_the_files_changed_is_not_used(is_held: bool, later: tuple[Container, ...]) -> None:
    scenario = holding() if is_held else RuntimeScenario.synced()
    scenario.plugin(["n0"], NIC, 2)
    effects = scenario.plugin([dongle("a", SECOND, THIRD)], endpoint=7, options=OWN)
    effects += scenario.see(pod("p", app("main"), *later))
    if later:
        answer(scenario, effects, SECOND, THIRD)
    call = calls(scenario.effects)[-1]
    assert calls(scenario.lists([dongle("a", FIRST, SECOND)], endpoint=7)) == []
    assert [again.device_ids for again in calls(scenario.answer(call))] == [("a",)]


NAMED = ("vendor.com/gpu=a", "a")


def gpu(device_id: str, *files: tuple[str, str]) -> Device:
    """files: its device files and CDI names."""
    return Device(device_id, files=files, identity=(f"GPU-{device_id}",))


def holding_by_cdi(*files: tuple[str, str], **more: Any) -> RuntimeScenario:
    """A pod has a GPU by a CDI name."""
    scenario = RuntimeScenario.synced(**more)
    (call,) = calls([*scenario.plugin([gpu("a", *files)], options=OWN), *scenario.see(pod("p", gpu=1))])
    scenario.happens("allocated", call.ticket, AllocateResponse(b"cdi", ContainerEdits(cdi_devices=(NAMED[0],))))
    assert edits(scenario).cdi_devices == (NAMED[0],)
    return scenario


@pytest.mark.parametrize("files", [(NAMED,), (FIRST, NAMED)], ids=["cdi", "auto"])
def test_a_cdi_name_that_has_outlived_its_specification(files: tuple[tuple[str, str], ...]) -> None:
    held = holding_by_cdi(*files)
    effects = held.lists([gpu("a", FIRST)])
    (call,) = calls(effects)
    assert (call.device_ids, call.pod_uid) == (("a",), "p")
    assert held.refusal("p").is_temporary
    assert answer(held, effects, FIRST)
    assert given(held) == {FIRST[0]}
    assert edits(held).cdi_devices == ()
    # it stays so where the name is back
    assert calls(held.lists([gpu("a", FIRST, NAMED)])) == []


@pytest.mark.parametrize("files", [(NAMED,), (FIRST, NAMED), ((NAMED[0], "other"), SECOND)])
def test_a_cdi_name_that_is_still_right_stays(files: tuple[tuple[str, str], ...]) -> None:
    """Whatever the device's files are."""
    held = holding_by_cdi(NAMED)
    assert calls(held.lists([gpu("a", *files)])) == []
    assert edits(held).cdi_devices == (NAMED[0],)


def test_while_the_built_in_plugin_has_not_listed() -> None:
    after = restarted(stored(holding()))
    assert after.refusal("p")
    after.connect(options=OWN)
    after.passes(60)
    refusal = after.refusal("p")
    assert "has not listed its devices yet" in refusal.message
    assert refusal.is_temporary
    after.plugin([dongle("a", FIRST)], options=OWN)
    assert given(after) == {FIRST[0]}


@pytest.mark.parametrize(
    ("is_cdi", "same", "other"),
    [
        pytest.param(False, dongle("a", FIRST), dongle("a", SECOND), id="device files"),
        pytest.param(False, dongle("a", FIRST, NAMED), dongle("a", SECOND, NAMED), id="beside a CDI name of now"),
        pytest.param(True, gpu("a", FIRST, NAMED), gpu("a", FIRST), id="a CDI name"),
    ],
)
def test_an_answer_that_an_older_agent_stored_goes_by_names(is_cdi: bool, same: Device, other: Device) -> None:
    held = holding_by_cdi(FIRST, NAMED) if is_cdi else holding()
    for listed, count in ((same, 0), (other, 1)):
        scenario = restarted(stored(held, files=()))
        assert len(calls(scenario.plugin([listed], options=OWN))) == count
        assert isinstance(scenario.ask("p"), Refusal if count else Grant)


def test_an_answer_that_cannot_be_read_is_called_so() -> None:
    after = restarted(stored(holding(), files=(), edits=None))
    after.plugin([dongle("a", FIRST)], options=OWN)
    assert "response for container main is invalid" in after.refusal("p").message


def test_of_somebody_elses_plugin_it_is_kept() -> None:
    """As the kubelet does, whether its devices are listed or not."""
    held = holding(PluginOptions())
    held.lists([])
    assert given(held) == {FIRST[0]}


def test_where_somebody_elses_plugin_has_taken_the_name_over() -> None:
    """It has not given the answer, and its list says nothing of the device."""
    held = holding()
    held.plugin(["a", "b"], endpoint=7)
    assert "has not listed its devices yet" in held.refusal("p").message
    held.disconnect(endpoint=7)
    assert given(held) == {FIRST[0]}


@pytest.mark.parametrize("resource", [GPU, "*"])
def test_a_built_in_plugin_is_called_again_whatever_allocate_retry_says(resource: str) -> None:
    """The setting is for plugins that find the pod of a call by order."""
    retry: dict[str, Any] = {"allocate_retry": {resource: "never"}}
    after = restarted(stored(holding(**retry)), **retry)
    assert calls(after.plugin([dongle("a", FIRST)], options=OWN)) == []
    assert given(after) == {FIRST[0]}
    answer(after, after.lists([dongle("a", SECOND)]), SECOND)
    assert given(after) == {SECOND[0]}


@pytest.mark.parametrize("knows_scopes", [True, False])
@pytest.mark.parametrize("allocate_retry", [{}, {GPU: "never"}, {"*": "never"}])
def test_after_a_boot_the_plugin_is_asked_first(knows_scopes: bool, allocate_retry: dict[str, str]) -> None:
    """No container starts with the file of before meanwhile, and no pod has to be deleted for `allocateRetry`. A checkpoint of an
    older agent goes by the configuration.
    """
    before = stored(holding(allocate_retry=allocate_retry))
    before = before if knows_scopes else structs.replace(before, scopes={})
    after = restarted(after_boot(before, lambda name: name == GPU), allocate_retry=allocate_retry)
    assert after.refusal("p")
    after.manager.allocate_once.creation_refused("p", "main")
    effects = after.plugin([dongle("b", FIRST), dongle("a", SECOND)], options=OWN)
    assert [call.device_ids for call in calls(effects)] == [("a",)]
    answer(after, effects, SECOND)
    assert given(after) == {SECOND[0]}
    assert after.manager.pending(GPU) == []


def test_a_response_that_is_given_again_is_right_for_the_files_of_now() -> None:
    held = holding(allocate_retry={GPU: "never"})
    (call,) = calls(held.lists([dongle("a", SECOND)]))
    assert [(a.response, a.edits, a.files) for a in held.manager.book] == [(None, None, ())]
    held.fail(call)
    answer(held, held.passes(1), SECOND)
    assert [allocation.files for allocation in held.manager.book] == [(SECOND,)]
    # the next failure is the first one again
    (call,) = calls(held.lists([dongle("a", FIRST)]))
    held.fail(call)
    (call,) = calls(held.passes(1))
    held.fail(call)
    # the plugin that has the name at the time of the retry gets no second call
    held.plugin(["a"], endpoint=7)
    assert calls(held.passes(60)) == []
