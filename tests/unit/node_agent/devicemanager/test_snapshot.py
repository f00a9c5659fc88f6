"""The numbers of a resource at one moment, and which devices are shown one by one."""

import pytest
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_api.names import Reason

from tests.unit.node_agent.devicemanager.identity_scenario import device, offers
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, container, device_ids, init, pod, status


@pytest.mark.kubelet("behaviour 19")
def test_numbers_of_devices_in_every_state() -> None:
    scenario = Scenario.with_plugin([*device_ids(6), Device("sick", healthy=False)], waits_for_runtime=True)
    scenario.run(pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=1))
    scenario.gone("q")
    scenario.cordon(GPU, ["d2", "d3"])
    scenario.lists([f"d{index}" for index in range(1, 6)] + [Device("sick", healthy=False)])
    seen = scenario.snapshot()
    # d0 is held and missing, d1 releasing, d2 held and cordoned, d3 cordoned, d4 and d5 free
    assert (seen.total, seen.healthy, seen.cordoned) == (7, 5, 2)
    assert (seen.allocated, seen.releasing, seen.available) == (2, 1, 2)
    views = {view.id: view for view in seen.devices}
    assert list(views) == [*device_ids(6), "sick"]
    assert {name for name, view in views.items() if not view.healthy} == {"d0", "sick"}
    assert {(view.reason, view.message) for view in views.values() if view.healthy} == {("", "")}
    assert (views["d0"].present, views["d0"].reason) == (False, "NotListed")
    assert (views["sick"].present, views["sick"].reason) == (True, "ReportedUnhealthy")
    assert [name for name, view in views.items() if view.cordoned] == ["d2", "d3"]
    assert [(h.allocation.pod_uid, h.releasing) for h in seen.held] == [("p", False), ("q", True), ("r", False)]


@pytest.mark.parametrize(
    ("comes", "reserved"),
    [
        pytest.param([], 0, id="no pending pod"),
        pytest.param([pod("next", gpu=1)], 0, id="whom a free one is enough for"),
        pytest.param([pod("next", gpu=3)], 2, id="one who needs them besides the free one"),
        pytest.param([pod("next", gpu=4)], 3, id="all of them"),
        pytest.param([pod("next", gpu=9)], 3, id="no more than there are"),
        pytest.param([pod("next", gpu=1), pod("after", gpu=2)], 2, id="two, of whom one is served"),
        pytest.param([pod("next", gpu=2), pod("after", gpu=2)], 3, id="two who both wait"),
        pytest.param([pod("next", nic=3)], 0, id="one who asks for something else"),
        pytest.param([pod("next", init("first", gpu=3), container(gpu=1))], 2, id="an init container asks for most"),
        pytest.param([pod("next", gpu=3, is_terminating=True)], 2, id="the scheduler counts it until it is gone"),
        pytest.param([pod("next", gpu=3), pod("next", gpu=3, has_ended=True)], 0, id="one that has ended"),
    ],
)
def test_releasing_devices_that_are_reserved(comes: list[Pod], reserved: int) -> None:
    scenario = Scenario.with_plugin(6, waits_for_runtime=True).run(pod("stays", gpu=2), pod("p", gpu=3))
    scenario.gone("p")
    scenario.run(*comes)
    seen = scenario.snapshot()
    assert (seen.releasing, seen.reserved) == (3, reserved)
    # at least what the scheduler counts here, and at most what can be available
    bound = 2 + sum(one.requested_count(GPU) for one in scenario.manager.pods.values() if one.uid != "stays")
    assert seen.allocated + seen.reserved + seen.available >= min(bound, 6)


def test_devices_that_will_not_be_free_are_not_reserved() -> None:
    scenario = Scenario.with_plugin(3, waits_for_runtime=True).run(pod("p", gpu=3))
    scenario.gone("p")
    scenario.run(pod("next", gpu=3))
    assert scenario.snapshot().reserved == 3
    scenario.cordon(GPU, ["d0"])
    scenario.lists(["d0", Device("d1", healthy=False), "d2"])
    assert scenario.snapshot().reserved == 1


@pytest.mark.kubelet("behaviour 69", "weak spot 12")
@pytest.mark.parametrize("count", [5, 1000])
def test_of_a_stopped_plugin_only_held_and_cordoned_devices_are_shown(count: int) -> None:
    listed = [Device(f"d{index:03}", index != 3, numa_nodes=(1,)) for index in range(count)]
    scenario = Scenario.with_plugin(listed).run(pod("p", gpu=1))
    scenario.cordon(GPU, ["d002", "ghost"])
    scenario.disconnect()
    seen = scenario.snapshot()
    assert (seen.total, seen.healthy, seen.cordoned, seen.allocated, seen.available) == (count, 0, 1, 1, 0)
    held, cordoned = seen.devices
    assert (held.id, held.healthy, held.present, held.numa_nodes) == ("d000", False, True, (1,))
    assert (held.reason, held.message) == ("", "")
    assert (cordoned.id, cordoned.cordoned) == ("d002", True)
    # of a resource that is cordoned whole, none is shown for that
    scenario.cordon(GPU, ["*"])
    assert [view.id for view in scenario.snapshot().devices] == ["d000"]
    scenario.passes(300)
    (missing,) = scenario.snapshot().devices
    assert (missing.id, missing.present, missing.reason) == ("d000", False, "NotListed")
    assert [(d["health"], d["presence"]) for d in status(scenario, {}, "now")["devices"]] == [("Unhealthy", "Missing")]
    scenario.plugin(listed, endpoint=2)
    assert (scenario.snapshot().healthy, scenario.snapshot().available) == (count - 1, 0)


def listed_twice(scenario: Scenario) -> Scenario:
    offers(scenario, GPU, device("gpu", "c1:9"))
    offers(scenario, NIC, device("nic", "c1:9"))
    return scenario


def said_of_the_card(scenario: Scenario) -> str:
    seen = scenario.snapshot(NIC)
    (view,) = seen.devices
    assert (view.reason, seen.unhealthy) == (Reason.IN_OTHER_USE, (view,))
    return view.message


def test_a_device_that_is_given_out_elsewhere_says_why_and_who_has_it() -> None:
    same = "it is the same device as gpu of example.com/gpu, and is"
    remedy = "there: remove it from the configuration of one of the two resources"
    scenario = listed_twice(Scenario())
    assert said_of_the_card(scenario) == f"{same} offered {remedy}"
    scenario.run(pod("p", gpu=1))
    assert said_of_the_card(scenario) == f"{same} allocated {remedy}; pod default/p has it now"
    # which the API has not shown yet
    again = listed_twice(scenario.restarted())
    assert said_of_the_card(again) == f"{same} allocated {remedy}; a pod with UID p has it now"
