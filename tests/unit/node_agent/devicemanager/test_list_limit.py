"""How many devices all plugins of a node may list: which list is refused, and what stays of its plugin."""

from typing import Any
from unittest.mock import patch

import pytest
from nodedevice_agent.devicemanager.resources import list_limit
from nodedevice_agent.devicemanager.resources.devices import Device, Size, accept, no_list

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, device_ids, pod
from tests.unit.node_agent.devicemanager.small_limit import MOST, SMALL, is_refused, totals
from tests.unit.node_agent.devicemanager.small_limit import small_limit as small_limit


def test_the_list_that_exceeds_it_is_refused_whole_and_the_one_before_it_stays() -> None:
    scenario = Scenario.with_plugin(60, nics=30).run(pod("p", gpu=1))
    scenario.lists(41, NIC, 2)
    assert totals(scenario) == {GPU: 60, NIC: 30}
    assert (is_refused(scenario, GPU), is_refused(scenario, NIC)) == (False, True)
    assert scenario.snapshot(NIC).available == 30
    # a first list, too
    scenario.plugin(11, "example.com/third", 3)
    assert totals(scenario)["example.com/third"] == 0
    assert is_refused(scenario, "example.com/third")
    # what fits is taken, and so is what is shorter than before
    scenario.lists(40, NIC, 2)
    scenario.lists(59, GPU)
    assert totals(scenario) == {GPU: 59, NIC: 40, "example.com/third": 0}
    assert not is_refused(scenario, NIC)


def test_a_list_that_is_no_longer_than_the_one_before_it_is_not_refused_whatever_the_bound_is_by_now() -> None:
    scenario = Scenario.with_plugin(60)
    with patch.multiple(list_limit, MAX_DEVICES=50):
        scenario.lists([Device(name, healthy=name != "d0") for name in device_ids(60)])
    assert (is_refused(scenario, GPU), scenario.snapshot().healthy) == (False, 59)


def test_a_list_that_was_counted_and_not_read_says_that_others_have_the_room() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(NIC, 2)
    scenario.lists(no_list(Size(MOST, 0), "too many"), NIC, 2)
    assert "is refused until there is room" in scenario.manager.resources[NIC].latest(2).id_error


def test_a_short_list_is_never_refused() -> None:
    scenario = Scenario.with_plugin(MOST)
    for number in range(5):
        scenario.plugin(SMALL, f"example.com/r{number}", 2 + number)
    assert set(totals(scenario).values()) == {MOST, SMALL}
    scenario.lists(MOST - 1)
    assert totals(scenario)[GPU] == MOST - 1


def test_a_domain_leaves_room_to_others() -> None:
    with patch.multiple(list_limit, MAX_DEVICES_OF_DOMAIN=70):
        scenario = Scenario.with_plugin(60, nics=11)
        assert is_refused(scenario, NIC)
        assert scenario.registered(NIC)["message"].startswith(
            "the device plugins of example.com may list 70 devices on a node, in 56 MiB; "
        )
        # as many as it may, and one more than before
        scenario.lists(59)
        scenario.plugin(11, NIC, 2)
        assert (totals(scenario)[NIC], is_refused(scenario, NIC)) == (11, False)
        scenario.lists(48)
        scenario.lists(49)
        assert (totals(scenario)[GPU], is_refused(scenario, GPU)) == (49, False)
        other = "example.org/gpu"
        scenario.plugin(40, other, 3)
        assert (totals(scenario)[other], is_refused(scenario, other)) == (40, False)


def test_memory_is_bounded_whatever_devices_are_made_of() -> None:
    """A device that says much of itself counts as the memory that it takes."""
    long = tuple((f"name-{n}", "v" * 200) for n in range(20))
    devices = [Device(f"d{index}", attributes=long) for index in range(20)]
    size = accept(devices).size
    assert size.octets > 20 * 20 * 200
    with patch.multiple(
        list_limit, MAX_OCTETS=3 * size.octets, MAX_OCTETS_OF_DOMAIN=2 * size.octets, _SMALL_OCTETS=1000
    ):
        scenario = Scenario()
        for number, name in enumerate((GPU, NIC, "example.com/third", "example.org/a", "example.org/b")):
            scenario.plugin(devices, name, 1 + number)
        refused = [name for name in totals(scenario) if is_refused(scenario, name)]
        assert refused == ["example.com/third", "example.org/b"], "two of a domain, three in all"
        # one that is as long as it may be is small
        with patch.multiple(
            list_limit, MAX_OCTETS=1, _SMALL_OCTETS=accept([Device("d0", attributes=long)]).size.octets
        ):
            scenario.lists([Device("d0", attributes=long)], "example.org/b", 5)
        assert not is_refused(scenario, "example.org/b")
        # a plain list of as many is small
        scenario.lists(1, "example.org/b", 5)
        assert totals(scenario)["example.org/b"] == 1


@pytest.mark.parametrize("more", [{"message": "m" * 500}, {"attributes": (("a", "b"),)}, {"numa_nodes": (0, 1)}])
def test_what_a_device_says_of_itself_counts(more: dict[str, Any]) -> None:
    plain, rich = accept([Device("d", healthy=False)]), accept([Device("d", healthy=False, **more)])
    assert rich.size.octets > plain.size.octets > 0
    assert accept([], parents={"p": Device("p", **more)}).size.octets > 0


def test_how_many_another_plugin_may_list() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(NIC, 2)
    limit = scenario.manager.table.list_limit
    assert limit.most_devices(NIC, 2) == MOST - 60
    with patch.multiple(list_limit, MAX_DEVICES_OF_DOMAIN=80):
        assert limit.most_devices(NIC, 2) == 80 - 60
    # a short list, and one as long as its last one, in any case
    with patch.multiple(list_limit, MAX_DEVICES=50):
        assert [limit.most_devices(NIC, 2), limit.most_devices(GPU, 1)] == [SMALL, 60]
