"""The limit of devices where one plugin has several connections, older and newer ones."""

from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.effects import TakeList

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario
from tests.unit.node_agent.devicemanager.small_limit import MOST, SMALL, is_refused, taken, totals
from tests.unit.node_agent.devicemanager.small_limit import small_limit as small_limit


def test_a_newer_connection_may_list_as_many_as_if_there_were_no_older_one() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(endpoint=2)
    limit = scenario.manager.table.list_limit
    assert [limit.most_devices(GPU, 1), limit.most_devices(GPU, 2), limit.most_devices(NIC, 3)] == [MOST, MOST, 0]


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
        scenario.lists(MOST + 1, GPU, endpoint)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 30}, True)
    # the older plugin's list is in force while the newer ones have none
    scenario.lists(20, GPU, 1)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: 20}, True)
    scenario.plugin(MOST - 20, NIC, 4)
    assert (totals(scenario)[NIC], is_refused(scenario, NIC)) == (MOST - 20, False)
    scenario.lists(SMALL, GPU, 3)
    assert (totals(scenario)[GPU], is_refused(scenario, GPU)) == (SMALL, False)


def test_an_older_connection_needs_room_beside_a_newer_ones_list() -> None:
    scenario = Scenario()
    scenario.connect(endpoint=1)
    scenario.plugin(60, endpoint=2)
    scenario.lists(50, endpoint=1)
    scenario.plugin(40, NIC, 3)
    assert totals(scenario) == {GPU: 60, NIC: 40}
    scenario.disconnect(endpoint=2)
    assert is_refused(scenario, GPU)


def test_an_older_connections_refused_list_has_the_room_of_a_newer_one_that_ends() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(60, endpoint=2)
    assert taken(scenario.lists(60, endpoint=1)) == []
    assert taken(scenario.disconnect(endpoint=2)) == [TakeList(GPU, 1)]


def test_the_latest_list_of_a_connection_is_a_refused_one_until_it_lists_again() -> None:
    scenario = Scenario.with_plugin(60, nics=30)
    scenario.lists(41, NIC, 2)
    latest = scenario.manager.resources[NIC].latest
    assert (latest(2).is_refused, len(latest(2).devices)) == (True, 0)
    assert "devices in all" in latest(2).id_error
    scenario.lists(40, NIC, 2)
    assert (latest(2).is_refused, len(latest(2).devices)) == (False, 40)


def test_a_late_list_of_a_connection_that_has_ended_changes_nothing() -> None:
    scenario = Scenario.with_plugin(MOST)
    scenario.connect(GPU, 2)
    scenario.disconnect(GPU, 2)
    scenario.lists(SMALL + 1, GPU, 2)
    assert (totals(scenario), is_refused(scenario, GPU)) == ({GPU: MOST}, False)
    scenario.plugin(SMALL + 1, NIC, 3)
    assert totals(scenario) == {GPU: MOST, NIC: 0}


STEPS = st.lists(
    st.tuples(
        st.sampled_from([GPU, NIC]),
        st.integers(1, 4),
        st.sampled_from(["list", "connect", "end", "hang"]),
        st.integers(0, 120),
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
        elif what == "hang":
            scenario.manager.table.disconnected(name, number, scenario.now, is_silent=True)
        else:
            scenario.lists(count, name, number)
        resources = scenario.manager.resources.values()
        lists = [c.listed for r in resources for c in r.connections.kept() if c.listed is not None]
        # the list in force, as any unknown connection has it; of a plugin that is gone it is short, or a number
        lists += [r.latest(0) for r in resources if r.connections.live]
        kept = {id(each.devices): len(each.devices) for each in lists}
        small = [size for size in kept.values() if size <= SMALL]
        assert sum(kept.values()) <= MOST + sum(small) + SMALL
