"""How many devices all plugins of a node may list: which list is refused, and what stays of its plugin."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.resources import list_limit

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, device_ids, pod, status
from tests.unit.node_agent.kube import crd_rules

MOST, SMALL = 100, 10


@pytest.fixture(autouse=True)
def _bounds() -> Iterator[None]:
    with patch.multiple(list_limit, MAX_DEVICES=MOST, MAX_SMALL_LIST=SMALL):
        yield


def totals(scenario: Scenario) -> dict[str, int]:
    return {name: scenario.snapshot(name).total for name in scenario.manager.resources}


def is_refused(scenario: Scenario, name: str) -> bool:
    shown = status(scenario, {}, "2026-01-05T00:00:00Z", name=name)
    assert crd_rules.problems(shown) == []
    (registered,) = (c for c in shown["conditions"] if c["type"] == "Registered")
    return (registered["status"], registered["reason"]) == ("True", "DevicesRefused")


def test_the_list_that_exceeds_it_is_refused_whole_and_the_one_before_it_stays() -> None:
    scenario = Scenario.with_plugin(60).run(pod("p", gpu=1))
    scenario.plugin(30, NIC, 2)
    scenario.lists(device_ids(41), NIC, 2)
    assert totals(scenario) == {GPU: 60, NIC: 30}
    assert (is_refused(scenario, GPU), is_refused(scenario, NIC)) == (False, True)
    assert scenario.snapshot(NIC).available == 30
    # a first list, too
    scenario.plugin(11, "example.com/third", 3)
    assert totals(scenario)["example.com/third"] == 0
    assert is_refused(scenario, "example.com/third")
    # what fits is taken, and so is what is shorter than before
    scenario.lists(device_ids(40), NIC, 2)
    scenario.lists(device_ids(59), GPU)
    assert totals(scenario) == {GPU: 59, NIC: 40, "example.com/third": 0}
    assert not is_refused(scenario, NIC)


def test_a_short_list_is_never_refused() -> None:
    scenario = Scenario.with_plugin(MOST)
    for number in range(5):
        scenario.plugin(SMALL, f"example.com/r{number}", 2 + number)
    assert set(totals(scenario).values()) == {MOST, SMALL}
    scenario.lists(device_ids(MOST - 1))
    assert totals(scenario)[GPU] == MOST - 1


def test_there_is_room_again_once_a_plugin_is_gone() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(60, NIC, 2)
    scenario.disconnect()
    scenario.lists(device_ids(60), NIC, 2)
    assert is_refused(scenario, NIC)
    scenario.passes(300)
    scenario.lists(device_ids(60), NIC, 2)
    assert totals(scenario) == {GPU: 0, NIC: 60}
    assert not is_refused(scenario, NIC)


def test_a_plugin_with_a_long_list_registers_again() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(60, endpoint=2)
    scenario.disconnect(endpoint=1)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 60}, False)
    scenario.disconnect(endpoint=2)
    scenario.plugin(70, endpoint=3)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 70}, False)
    # one that lists too many then keeps what it had
    scenario.plugin(MOST + 1, endpoint=4)
    scenario.disconnect(endpoint=3)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 70}, True)


def test_a_refused_first_list_keeps_no_other_connections_list() -> None:
    scenario = Scenario.with_plugin(30)
    for endpoint in (2, 3):
        scenario.connect(GPU, endpoint)
        scenario.lists(device_ids(MOST + 1), GPU, endpoint)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 30}, True)
    # the older plugin's list is in force while the newer ones have none
    scenario.lists(device_ids(20), GPU, 1)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 20}, True)
    scenario.plugin(MOST - 20, NIC, 4)
    assert (totals(scenario)[NIC], is_refused(scenario, NIC)) == (MOST - 20, False)
    scenario.lists(device_ids(SMALL), GPU, 3)
    assert (totals(scenario)[GPU], is_refused(scenario, GPU)) == (SMALL, False)


def test_an_older_connection_whose_list_made_room_counts_as_one_that_has_not_listed() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(70, endpoint=2)
    scenario.disconnect(endpoint=2)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 70}, False)
    assert scenario.snapshot(GPU).available == 0
    scenario.lists(device_ids(50), endpoint=1)
    assert scenario.snapshot(GPU).available == 50


def test_a_list_that_has_room_without_its_own_earlier_one_leaves_an_older_connections() -> None:
    scenario = Scenario.with_plugin(30)
    scenario.plugin(40, endpoint=2)
    scenario.lists(device_ids(MOST - 30), endpoint=2)
    scenario.disconnect(endpoint=2)
    assert (scenario.snapshot().total, scenario.snapshot().available) == (30, 30)


def test_an_older_connection_needs_room_beside_a_newer_ones_list() -> None:
    scenario = Scenario()
    scenario.connect(endpoint=1)
    scenario.plugin(60, endpoint=2)
    scenario.lists(device_ids(50), endpoint=1)
    scenario.plugin(40, NIC, 3)
    assert totals(scenario) == {GPU: 60, NIC: 40}
    scenario.disconnect(endpoint=2)
    assert is_refused(scenario, GPU)


def test_the_latest_list_of_a_connection_is_a_refused_one_until_it_lists_again() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(30, NIC, 2)
    scenario.lists(device_ids(41), NIC, 2)
    latest = scenario.manager.resources[NIC].latest
    assert (latest(2).is_refused, len(latest(2).devices)) == (True, 0)
    assert "devices in all" in latest(2).id_error
    scenario.lists(device_ids(40), NIC, 2)
    assert (latest(2).is_refused, len(latest(2).devices)) == (False, 40)


def test_a_late_list_of_a_connection_that_has_ended_changes_nothing() -> None:
    scenario = Scenario.with_plugin(MOST)
    scenario.connect(GPU, 2)
    scenario.disconnect(GPU, 2)
    scenario.lists(device_ids(SMALL + 1), GPU, 2)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: MOST}, False)
    scenario.plugin(SMALL + 1, NIC, 3)
    assert totals(scenario) == {GPU: MOST, NIC: 0}


STEPS = st.lists(
    st.tuples(
        st.sampled_from([GPU, NIC]), st.integers(1, 4), st.sampled_from(["list", "connect", "end"]), st.integers(0, 120)
    ),
    max_size=30,
)


@given(STEPS)
# a first list that is refused, beside an older plugin whose list changes
@example(
    [(NIC, 2, "connect", 0), (NIC, 1, "connect", 0), (NIC, 1, "list", 96), (NIC, 2, "list", 11), (NIC, 1, "list", 15)]
)
def test_no_more_is_kept_of_any_connections(steps: list[tuple[str, int, str, int]]) -> None:
    scenario, endpoints = Scenario(), {GPU: 0, NIC: 10}
    for name, endpoint, what, count in steps:
        number = endpoint + endpoints[name]
        if what == "connect":
            scenario.disconnect(name, number)
            scenario.connect(name, number)
        elif what == "end":
            scenario.disconnect(name, number)
        else:
            scenario.lists(device_ids(count), name, number)
        resources = scenario.manager.resources.values()
        lists = [c.listed for r in resources for c in r._connections if c.listed is not None]
        lists += [r._reported for r in resources]
        kept = {id(each.devices): len(each.devices) for each in lists}
        small = [size for size in kept.values() if size <= SMALL]
        assert sum(kept.values()) <= MOST + sum(small) + SMALL
