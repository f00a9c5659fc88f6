"""Refused lists are read again once there is room: what makes room, who has it, and what is kept of a plugin that is gone."""

from collections.abc import Callable

import pytest
from msgspec import structs
from nodedevice_agent.devicemanager.effects import Effect, TakeList
from nodedevice_agent.devicemanager.resources import devices as devices_module
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.identity_scenario import own
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, device_ids, pod
from tests.unit.node_agent.devicemanager.small_limit import MOST, is_refused, taken, totals
from tests.unit.node_agent.devicemanager.small_limit import small_limit as small_limit


def test_devices_of_a_plugin_that_is_gone_give_way_but_for_those_that_a_pod_holds_or_are_cordoned() -> None:
    scenario = Scenario.with_plugin(60).run(pod("p", gpu=2))
    scenario.cordon(GPU, ["d59"])
    scenario.plugin(60, NIC, 2)
    assert is_refused(scenario, NIC)
    assert TakeList(NIC, 2) in scenario.disconnect()
    scenario.lists(MOST - 2, NIC, 2)
    assert is_refused(scenario, NIC), "three of the other are claimed"
    scenario.lists(MOST - 3, NIC, 2)
    assert (totals(scenario), is_refused(scenario, NIC)) == ({GPU: 60, NIC: MOST - 3}, False)
    assert scenario.snapshot(GPU).allocated == 2


def test_a_refused_list_is_read_again_once_there_is_room() -> None:
    scenario = Scenario.with_plugin(60, nics=30)
    waiting = "example.com/third"
    scenario.connect(waiting, 3)
    assert not taken(scenario.lists(41, waiting, 3))
    # too little room yet; then enough; and it is asked for once
    assert not taken(scenario.lists(30, GPU))
    is_awaited = scenario.manager.table.is_list_awaited
    assert not is_awaited(waiting, 3)
    assert taken(scenario.lists(29, NIC, 2)) == [TakeList(waiting, 3)]
    assert [is_awaited(waiting, 3), is_awaited(NIC, 2), is_awaited("example.com/unknown", 1)] == [True, False, False]
    assert not taken(scenario.lists(28, NIC, 2))
    scenario.lists(41, waiting, 3)
    assert (totals(scenario)[waiting], is_refused(scenario, waiting)) == (41, False)


def test_a_list_that_is_refused_again_waits_again() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(NIC, 2)
    scenario.lists(50, NIC, 2)
    assert taken(scenario.lists(50)) == [TakeList(NIC, 2)]
    # it has grown meanwhile
    assert not taken(scenario.lists(51, NIC, 2))
    assert taken(scenario.lists(49)) == [TakeList(NIC, 2)]
    scenario.disconnect(NIC, 2)
    assert not taken(scenario.lists(1))


LONG = [Device(name, attributes=(("a", "v" * 9000),)) for name in device_ids(10)]


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda scenario: scenario.lists(10), id="a shorter list"),
        pytest.param(lambda scenario: scenario.lists(LONG), id="fewer devices that say more"),
        pytest.param(lambda scenario: scenario.disconnect(), id="the end of the plugin"),
        pytest.param(lambda scenario: scenario.happens("table.displaced", [GPU], NIC), id="a lost place"),
    ],
)
def test_what_ends_makes_room(ends: Callable[[Scenario], list[Effect]]) -> None:
    scenario = Scenario.with_plugin(60, nics=60)
    assert taken(ends(scenario)) == [TakeList(NIC, 2)]


@pytest.fixture
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_module, "MAX_KEPT_OF_GONE", 8)


@pytest.mark.usefixtures("few_are_kept")
def test_of_a_long_list_of_a_plugin_that_is_gone_only_claimed_devices_are_kept() -> None:
    scenario = Scenario.with_plugin([Device(f"d{index:02}", parent=f"p{index // 4}") for index in range(40)])
    scenario.run(pod("p", gpu=1))
    scenario.cordon(GPU, ["d39"])
    before = scenario.snapshot()
    scenario.disconnect()
    seen, resource = scenario.snapshot(), scenario.manager.resources[GPU]
    # held and cordoned ones, with what is of the same physical devices
    assert sorted(resource.devices) == ["d00", "d01", "d02", "d03", "d36", "d37", "d38", "d39"]
    assert (seen.total, seen.cordoned, seen.allocated, seen.healthy) == (40, 1, 1, 0)
    assert [view.id for view in seen.devices] == ["d00", "d39"]
    # it comes back, and has all of them
    scenario.plugin([Device(f"d{index:02}", parent=f"p{index // 4}") for index in range(40)], endpoint=2)
    assert scenario.snapshot() == structs.replace(before, sockets=scenario.snapshot().sockets)


@pytest.mark.usefixtures("few_are_kept")
def test_so_it_is_where_the_plugin_did_not_answer_before() -> None:
    scenario = Scenario.with_plugin(40)
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    assert len(scenario.manager.resources[GPU].devices) == 40
    scenario.disconnect()
    assert (len(scenario.manager.resources[GPU].devices), scenario.snapshot().total) == (0, 40)


def test_lists_of_a_plugin_that_does_not_answer_count_until_it_ends() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.plugin(60, NIC, 2)
    assert is_refused(scenario, NIC)
    # what it lists meanwhile counts once it answers
    assert scenario.lists(50, GPU) == []
    assert scenario.snapshot(GPU).total == 60
    assert scenario.snapshot(GPU).available == 0
    # beside the list that is shown until then
    scenario.lists(45, NIC, 2)
    assert is_refused(scenario, NIC)
    scenario.connect(GPU, 1)
    assert (scenario.snapshot(GPU).total, scenario.snapshot(GPU).available) == (50, 50)
    # long after its grace period, too
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.passes(300)
    scenario.lists(60, NIC, 2)
    assert is_refused(scenario, NIC)
    assert taken(scenario.disconnect(GPU, 1)) == [TakeList(NIC, 2)]
    scenario.lists(60, NIC, 2)
    assert not is_refused(scenario, NIC)


def test_room_is_given_to_as_many_refused_lists_as_it_is_enough_for() -> None:
    scenario = Scenario.with_plugin(90)
    waiting = [f"example.com/w{number}" for number in range(4)]
    for number, name in enumerate(waiting):
        scenario.plugin(40, name, 2 + number)
    assert taken(scenario.disconnect()) == [TakeList(waiting[0], 2), TakeList(waiting[1], 3)]
    # these have their room, also before they come
    scenario.plugin(30, NIC, 9)
    assert is_refused(scenario, NIC)
    scenario.disconnect(waiting[0], 2)
    assert totals(scenario)[waiting[2]] == 0
    scenario.lists(40, waiting[1], 3)
    assert totals(scenario)[waiting[1]] == 40


def test_a_resource_is_not_forgotten_while_its_plugin_may_answer_and_then_leaves_its_room() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.passes(300)
    scenario.plugin(60, NIC, 2)
    assert not scenario.forgets(GPU)
    # most plugins list once
    scenario.connect()
    assert (scenario.snapshot().total, is_refused(scenario, NIC)) == (60, True)
    scenario.disconnect()
    scenario.passes(300)
    assert scenario.forgets(GPU)
    scenario.lists(60, NIC, 2)
    assert not is_refused(scenario, NIC)


def test_the_end_of_an_older_connection_makes_room_though_nothing_else_changes() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(30, endpoint=2)
    scenario.plugin(50, NIC, 3)
    assert is_refused(scenario, NIC)
    assert scenario.disconnect(endpoint=1) == [TakeList(NIC, 3)]


@pytest.mark.parametrize(
    "forgets",
    [lambda scenario: scenario.passes(300), lambda scenario: scenario.happens("table.configured", lambda *_: False)],
    ids=["its grace period ends", "it is not configured"],
)
def test_claimed_devices_of_a_gone_plugin_make_room_when_forgotten(
    forgets: Callable[[Scenario], list[Effect]],
) -> None:
    scenario = Scenario.with_plugin(60, options=own("GPUs")).run(pod("p", gpu=30))
    scenario.disconnect()
    scenario.plugin(80, NIC, 2)
    assert is_refused(scenario, NIC)
    assert taken(forgets(scenario)) == [TakeList(NIC, 2)]
