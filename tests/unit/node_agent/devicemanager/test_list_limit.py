"""How many devices all plugins of a node may list: which list is refused, and what stays of its plugin."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from nodedevice_agent.devicemanager.effects import Effect, TakeList
from nodedevice_agent.devicemanager.resources import devices as devices_module
from nodedevice_agent.devicemanager.resources import list_limit
from nodedevice_agent.devicemanager.resources.devices import Device, Size, accept, no_list
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, device_ids, pod, status
from tests.unit.node_agent.kube import crd_rules

MOST, SMALL = 100, 10
TIME = "2026-01-05T00:00:00Z"


@pytest.fixture(autouse=True)
def _bounds() -> Iterator[None]:
    with patch.multiple(list_limit, MAX_DEVICES=MOST, MAX_SMALL_LIST=SMALL):
        yield


def totals(scenario: Scenario) -> dict[str, int]:
    return {name: scenario.snapshot(name).total for name in scenario.manager.resources}


def taken(effects: Iterable[Effect]) -> list[TakeList]:
    return [effect for effect in effects if isinstance(effect, TakeList)]


def is_refused(scenario: Scenario, name: str) -> bool:
    shown = status(scenario, {}, TIME, name=name)
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
    scenario.lists(device_ids(MOST - 1))
    assert totals(scenario)[GPU] == MOST - 1


def test_devices_of_a_plugin_that_is_gone_give_way_but_for_those_that_a_pod_holds_or_are_cordoned() -> None:
    scenario = Scenario.with_plugin(60).run(pod("p", gpu=2))
    scenario.cordon(GPU, ["d59"])
    scenario.plugin(60, NIC, 2)
    assert is_refused(scenario, NIC)
    effects = scenario.disconnect()
    assert TakeList(NIC, 2) in effects
    scenario.lists(device_ids(MOST - 2), NIC, 2)
    assert is_refused(scenario, NIC), "three of the other are claimed"
    scenario.lists(device_ids(MOST - 3), NIC, 2)
    assert (totals(scenario), is_refused(scenario, NIC)) == ({GPU: 60, NIC: MOST - 3}, False)
    assert scenario.snapshot(GPU).allocated == 2


def test_a_refused_list_is_read_again_once_there_is_room() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.plugin(30, NIC, 2)
    waiting = "example.com/third"
    scenario.connect(waiting, 3)
    assert not taken(scenario.lists(device_ids(41), waiting, 3))
    # too little room yet; then enough; and it is asked for once
    assert not taken(scenario.lists(device_ids(30), GPU))
    is_awaited = scenario.manager.is_list_awaited
    assert not is_awaited(waiting, 3)
    assert taken(scenario.lists(device_ids(29), NIC, 2)) == [TakeList(waiting, 3)]
    assert [is_awaited(waiting, 3), is_awaited(NIC, 2), is_awaited("example.com/unknown", 1)] == [True, False, False]
    assert not taken(scenario.lists(device_ids(28), NIC, 2))
    scenario.lists(device_ids(41), waiting, 3)
    assert (totals(scenario)[waiting], is_refused(scenario, waiting)) == (41, False)


def test_a_list_that_is_refused_again_waits_again() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(NIC, 2)
    scenario.lists(device_ids(50), NIC, 2)
    assert taken(scenario.lists(device_ids(50))) == [TakeList(NIC, 2)]
    # it has grown meanwhile
    assert not taken(scenario.lists(device_ids(51), NIC, 2))
    assert taken(scenario.lists(device_ids(49))) == [TakeList(NIC, 2)]
    scenario.disconnect(NIC, 2)
    assert not taken(scenario.lists(device_ids(1)))


def test_what_ends_makes_room() -> None:
    """Whatever gives room: a shorter list, an end, one that is not configured any more, a grace period, a place that is lost."""
    ends: dict[str, Callable[[Scenario], list[Effect]]] = {
        "a shorter list": lambda scenario: scenario.lists(device_ids(10)),
        "fewer devices that say more": lambda scenario: scenario.lists(
            Device(name, attributes=(("a", "v" * 9000),)) for name in device_ids(10)
        ),
        "the end of the plugin": lambda scenario: scenario.disconnect(),
        "a lost place": lambda scenario: scenario.happens("displaced", [GPU], NIC),
    }
    for end, act in ends.items():
        scenario = Scenario.with_plugin(60)
        scenario.plugin(60, NIC, 2)
        assert taken(act(scenario)) == [TakeList(NIC, 2)], end


def test_a_domain_leaves_room_to_others() -> None:
    with patch.multiple(list_limit, MAX_DEVICES_OF_DOMAIN=70):
        scenario = Scenario.with_plugin(60)
        scenario.plugin(11, NIC, 2)
        assert is_refused(scenario, NIC)
        (registered,) = (c for c in status(scenario, {}, TIME, name=NIC)["conditions"] if c["type"] == "Registered")
        assert registered["message"].startswith(
            "the device plugins of example.com may list 70 devices on a node, in 56 MiB; "
        )
        # as many as it may, and one more than before
        scenario.lists(device_ids(59))
        scenario.plugin(11, NIC, 2)
        assert (totals(scenario)[NIC], is_refused(scenario, NIC)) == (11, False)
        scenario.lists(device_ids(48))
        scenario.lists(device_ids(49))
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
        scenario.lists(device_ids(1), "example.org/b", 5)
        assert totals(scenario)["example.org/b"] == 1


@pytest.mark.parametrize("more", [{"message": "m" * 500}, {"attributes": (("a", "b"),)}, {"numa_nodes": (0, 1)}])
def test_what_a_device_says_of_itself_counts(more: dict[str, Any]) -> None:
    plain, rich = accept([Device("d", healthy=False)]), accept([Device("d", healthy=False, **more)])
    assert rich.size.octets > plain.size.octets > 0
    assert accept([], parents={"p": Device("p", **more)}).size.octets > 0


def test_of_a_long_list_of_a_plugin_that_is_gone_only_claimed_devices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_module, "MAX_KEPT_OF_GONE", 8)
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


def test_so_it_is_where_the_plugin_did_not_answer_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_module, "MAX_KEPT_OF_GONE", 8)
    scenario = Scenario.with_plugin(40)
    scenario.manager.disconnected(GPU, 1, scenario.now, is_silent=True)
    assert len(scenario.manager.resources[GPU].devices) == 40
    scenario.disconnect()
    assert (len(scenario.manager.resources[GPU].devices), scenario.snapshot().total) == (0, 40)


def test_a_newer_connection_may_list_as_many_as_if_there_were_no_older_one() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(endpoint=2)
    limit = scenario.manager.list_limit
    assert [limit.most_devices(GPU, 1), limit.most_devices(GPU, 2), limit.most_devices(NIC, 3)] == [MOST, MOST, 0]


def test_how_many_another_plugin_may_list() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.connect(NIC, 2)
    limit = scenario.manager.list_limit
    assert limit.most_devices(NIC, 2) == MOST - 60
    with patch.multiple(list_limit, MAX_DEVICES_OF_DOMAIN=80):
        assert limit.most_devices(NIC, 2) == 80 - 60
    # a short list, and one as long as its last one, in any case
    with patch.multiple(list_limit, MAX_DEVICES=50):
        assert [limit.most_devices(NIC, 2), limit.most_devices(GPU, 1)] == [SMALL, 60]


def test_lists_of_a_plugin_that_does_not_answer_count_until_it_ends() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.manager.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.plugin(60, NIC, 2)
    assert is_refused(scenario, NIC)
    # what it lists meanwhile counts once it answers
    assert scenario.lists(device_ids(50), GPU) == []
    assert scenario.snapshot(GPU).total == 60
    assert scenario.snapshot(GPU).available == 0
    # beside the list that is shown until then
    scenario.lists(device_ids(45), NIC, 2)
    assert is_refused(scenario, NIC)
    scenario.connect(GPU, 1)
    assert (scenario.snapshot(GPU).total, scenario.snapshot(GPU).available) == (50, 50)
    # long after its grace period, too
    scenario.manager.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.passes(300)
    scenario.lists(device_ids(60), NIC, 2)
    assert is_refused(scenario, NIC)
    assert taken(scenario.disconnect(GPU, 1)) == [TakeList(NIC, 2)]
    scenario.lists(device_ids(60), NIC, 2)
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
            scenario.manager.disconnected(name, number, scenario.now, is_silent=True)
        else:
            scenario.lists(device_ids(count), name, number)
        resources = scenario.manager.resources.values()
        lists = [c.listed for r in resources for c in r.connections.kept() if c.listed is not None]
        # of a plugin that is gone it is short, or a number
        lists += [r._reported for r in resources if r.connections.live]
        kept = {id(each.devices): len(each.devices) for each in lists}
        small = [size for size in kept.values() if size <= SMALL]
        assert sum(kept.values()) <= MOST + sum(small) + SMALL


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
    scenario.lists(device_ids(40), waiting[1], 3)
    assert totals(scenario)[waiting[1]] == 40


def test_refused_lists_are_looked_at_only_where_another_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may have hundreds of them, and a plugin sends 50 lists a second for each of its names."""
    looked: list[str] = []
    problem = ListLimit._problem

    def noted(limit: ListLimit, resource: Resource, endpoint: int, size: Size) -> str:
        looked.append(resource.name)
        return problem(limit, resource, endpoint, size)

    monkeypatch.setattr(ListLimit, "_problem", noted)
    scenario = Scenario.with_plugin(60)
    for number in range(5):
        scenario.plugin(60, f"example.com/w{number}", 10 + number)
    # each twice when it comes, without and with what an older connection has
    assert len(looked) == 1 + 2 * 5
    looked.clear()
    scenario.plugin(20, NIC, 2)
    scenario.lists([Device("d0", healthy=False), *(Device(i) for i in device_ids(20)[1:])], NIC, 2)
    assert {*looked} == {NIC}
    scenario.lists(device_ids(19), NIC, 2)
    scenario.lists([Device("d0", healthy=False), *(Device(i) for i in device_ids(19)[1:])], NIC, 2)
    assert looked.count("example.com/w0") == 1


def test_a_resource_is_not_forgotten_while_its_plugin_may_answer_and_then_leaves_its_room() -> None:
    scenario = Scenario.with_plugin(60)
    scenario.manager.disconnected(GPU, 1, scenario.now, is_silent=True)
    scenario.passes(300)
    scenario.plugin(60, NIC, 2)
    assert not scenario.manager.forget(GPU)
    # most plugins list once
    scenario.connect()
    assert (scenario.snapshot().total, is_refused(scenario, NIC)) == (60, True)
    scenario.disconnect()
    scenario.passes(300)
    assert scenario.manager.forget(GPU)
    scenario.lists(device_ids(60), NIC, 2)
    assert not is_refused(scenario, NIC)


def test_of_domains_that_are_gone_nothing_is_kept() -> None:
    scenario = Scenario.with_plugin(1)
    limit = scenario.manager.list_limit
    before = {*limit._sums}, {*limit._sizes}
    for number in range(3):
        name = f"d{number}.example.com/x"
        scenario.connect(name, 10 + number)
        scenario.lists(2, name, 10 + number)
        scenario.disconnect(name, 10 + number)
        scenario.passes(300)
        assert scenario.manager.forget(name)
    assert ({*limit._sums}, {*limit._sizes}) == before
