"""Which resource names a node has: who gets a place, who loses one, and what nobody can lose."""

from collections.abc import Callable

import pytest
from nodedevice_agent.devicemanager import resource_name_limit
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.registration import RegistrationRejected
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.use import DeviceUse
from nodedevice_common.fair_places import EXCHANGE_SECONDS, spare

from tests.unit.node_agent.devicemanager.scenario import Scenario, pod

MANY, FEW = "many.example.com", "few.example.com"


def names(domain: str, count: int) -> list[str]:
    return [f"{domain}/r{number}" for number in range(count)]


def node(*registered: str, are_pods_known: bool = True) -> Scenario:
    scenario = Scenario()
    for endpoint, name in enumerate(registered, start=1):
        scenario.plugin(1, name, endpoint)
    scenario.manager.places.are_pods_known = are_pods_known
    return scenario


def full(many: int = MAX_NAMES, *others: str) -> Scenario:
    return node(*others, *names(MANY, many - len(others)))


def find(scenario: Scenario, name: str) -> str:
    return scenario.manager.places.find(name, scenario.now)


def refusal(scenario: Scenario, name: str) -> RegistrationRejected:
    with pytest.raises(RegistrationRejected) as refused:
        find(scenario, name)
    assert refused.value.reason == "Names"
    return refused.value


def exchange(scenario: Scenario, name: str) -> str:
    """The name registers. Returns which one has lost its place."""
    loser = find(scenario, name)
    scenario.manager.places.exchanged(loser, name, scenario.now)
    scenario.happens("table.displaced", [loser], name)
    scenario.plugin(1, name, endpoint=1000)
    return loser


# the newest one where a plugin serves as many names as there may be
LAST = f"{MANY}/r255"


def used(scenario: Scenario) -> DeviceUse:
    return scenario.manager.resources[LAST].use


class TestRoom:
    def test_up_to_256_names_have_a_place_whoever_serves_them(self) -> None:
        scenario = node(*names(MANY, MAX_NAMES - 2))
        scenario.manager.places.others = lambda: {f"{FEW}/kubelets": False}
        assert find(scenario, f"{MANY}/last") == ""
        scenario.plugin(1, f"{MANY}/last", endpoint=999)
        refusal(scenario, f"{MANY}/one-more")

    @pytest.mark.parametrize(
        "happens",
        [
            pytest.param(lambda scenario, name: None, id="it serves"),
            pytest.param(lambda scenario, name: scenario.disconnect(name, 1), id="it has stopped"),
            pytest.param(lambda scenario, name: (scenario.disconnect(name, 1), scenario.passes(301)), id="it is gone"),
        ],
    )
    def test_a_name_that_has_its_place_registers_again(self, happens: Callable[[Scenario, str], object]) -> None:
        scenario = full()
        happens(scenario, f"{MANY}/r0")
        assert find(scenario, f"{MANY}/r0") == ""
        # it is counted until it is forgotten, and that is when its NodeDevice is deleted
        refusal(scenario, f"{MANY}/one-more")

    def test_what_is_forgotten_leaves_its_place(self) -> None:
        scenario = full()
        scenario.disconnect(f"{MANY}/r0", 1)
        scenario.passes(301)
        assert scenario.forgets(f"{MANY}/r0")
        assert find(scenario, f"{MANY}/one-more") == ""

    def test_a_name_that_agent_and_kubelet_serve_counts_once_and_is_needed_where_either_needs_it(self) -> None:
        scenario = full()
        scenario.manager.places.others = lambda: {f"{MANY}/r255": True, f"{MANY}/r254": False}
        assert find(scenario, f"{FEW}/new") == f"{MANY}/r254"

    def test_names_of_others_have_places_as_long_as_there_are_some(self) -> None:
        scenario = full(MAX_NAMES - 1)
        placed = scenario.manager.places.placed
        assert placed([f"{FEW}/a", f"{FEW}/b", f"{MANY}/r0"]) == {f"{FEW}/a", f"{MANY}/r0"}
        # nobody has got one by that
        assert placed([f"{FEW}/b"]) == {f"{FEW}/b"}
        scenario.happens("table.displaced", [f"{MANY}/r0"], f"{FEW}/a")
        assert placed([f"{MANY}/r0", f"{MANY}/r1"]) == {f"{MANY}/r1"}


class TestExchange:
    def test_the_domain_with_most_loses_its_newest_name(self) -> None:
        assert exchange(full(MAX_NAMES, f"{FEW}/old"), f"{FEW}/new") == f"{MANY}/r254"

    def test_it_is_gone_without_a_grace_period_and_says_whose_its_place_is(self) -> None:
        scenario = full()
        effects = scenario.happens("table.displaced", [LAST], f"{FEW}/new")
        assert effects == [SaveCheckpoint(durable=False), Publish(LAST)]
        presence = scenario.manager.resources[LAST].presence
        assert (presence.state, presence.grace_ends_at, presence.is_not_configured) == (EndpointState.GONE, None, True)
        assert scenario.manager.resources[LAST].listed.devices == {}
        shown = scenario.registered(LAST)
        assert (shown["status"], shown["reason"]) == ("False", "PlaceTaken")
        assert f"{FEW}/new has its place" in shown["message"]
        # the end of its stream comes late, and so does a list
        assert scenario.disconnect(LAST, 256) == []
        assert scenario.lists(2, LAST, 256) == []
        assert scenario.forgets(LAST)

    def test_one_that_registers_all_the_same_is_like_any_other(self) -> None:
        scenario = full()
        scenario.happens("table.displaced", [LAST], f"{FEW}/new")
        scenario.plugin(1, LAST, endpoint=1000)
        seen = scenario.snapshot(LAST)
        assert (seen.state, seen.lost_to, seen.is_not_configured) == (EndpointState.RUNNING, None, False)
        assert seen.available == 1

    def test_a_pod_that_asks_for_it_meanwhile_learns_what_to_do(self) -> None:
        scenario = full()
        scenario.happens("table.displaced", [LAST], f"{FEW}/new")
        scenario.see(pod("u", Container("c", limits={LAST: 1})))
        (waiting,) = scenario.manager.pending(LAST)
        assert (waiting.reason, waiting.message.rpartition(": ")[2]) == ("PlaceTaken", "delete the pod")
        assert not scenario.forgets(LAST)

    def test_at_most_one_a_minute_and_none_before_the_last_one_is_over(self) -> None:
        scenario = full()
        loser = exchange(scenario, f"{FEW}/a")
        scenario.passes(EXCHANGE_SECONDS - 1)
        assert scenario.forgets(loser)
        refusal(scenario, f"{FEW}/b")
        scenario.passes(1)
        loser = exchange(scenario, f"{FEW}/b")
        scenario.passes(EXCHANGE_SECONDS)
        # its NodeDevice is still there
        refusal(scenario, f"{FEW}/c")
        assert scenario.forgets(loser)
        assert find(scenario, f"{FEW}/c")

    def test_who_has_lost_its_place_learns_to_whom(self) -> None:
        scenario = full()
        loser = exchange(scenario, f"{FEW}/a")
        # it does not get it back by registering at once, and no other name has to go while its NodeDevice is there
        assert f"{FEW}/a has its place" in str(refusal(scenario, loser))
        assert scenario.manager.places.beyond() == []
        assert scenario.forgets(loser)
        assert f"{FEW}/a has its place" in str(refusal(scenario, loser))
        assert "has its place" not in str(refusal(scenario, f"{MANY}/another"))

    @pytest.mark.parametrize(
        "needs",
        [
            pytest.param(lambda scenario: used(scenario).holders.update(d0="u"), id="held"),
            pytest.param(lambda scenario: used(scenario).reserved.update(d0="u"), id="reserved"),
            pytest.param(lambda scenario: scenario.see(pod("u", Container("c", limits={LAST: 9}))), id="asked for"),
            pytest.param(lambda scenario: scenario.cordon(LAST, ["d0"]), id="cordoned"),
            pytest.param(
                lambda scenario: setattr(used(scenario), "possible_holders", frozenset({"u"})), id="perhaps held"
            ),
        ],
    )
    def test_what_is_needed_stays(self, needs: Callable[[Scenario], object]) -> None:
        scenario = full()
        needs(scenario)
        assert find(scenario, f"{FEW}/new") == f"{MANY}/r254"

    def test_nothing_is_exchanged_before_the_pods_are_known(self) -> None:
        assert not Scenario().manager.places.are_pods_known
        refusal(node(*names(MANY, MAX_NAMES), are_pods_known=False), f"{FEW}/new")

    def test_the_latest_losers_are_remembered(self) -> None:
        scenario = full()
        for number in range(65):
            scenario.manager.places.exchanged(f"{MANY}/lost{number}", f"{FEW}/new", scenario.now)
        assert "has its place" not in str(refusal(scenario, f"{MANY}/lost0"))
        assert "has its place" in str(refusal(scenario, f"{MANY}/lost1"))

    def test_a_name_that_the_kubelet_serves_loses_its_place_like_any_other(self) -> None:
        scenario = node(f"{FEW}/own")
        scenario.manager.places.others = lambda: {**dict.fromkeys(names(MANY, 254), False), f"{MANY}/r254": True}
        assert find(scenario, f"{FEW}/new") == f"{MANY}/r253"


@pytest.mark.parametrize(
    ("taken", "name", "loser"),
    [
        pytest.param({"a.b/1": False, "a.b/2": False}, "c.d/1", "a.b/2", id="the newest"),
        pytest.param({"a.b/1": False, "a.b/2": True}, "c.d/1", "a.b/1", id="that nobody needs"),
        pytest.param({"a.b/1": True, "a.b/2": True}, "c.d/1", "", id="all are needed"),
        pytest.param({"a.b/1": False, "c.d/1": False}, "c.d/2", "", id="as many as any other domain"),
        pytest.param({"a.b/1": False, "a.b/2": False, "c.d/1": False}, "c.d/2", "", id="one fewer"),
        pytest.param({"a.b/1": False, "a.b/2": False, "a.b/3": False, "c.d/1": False}, "c.d/2", "a.b/3", id="fewer"),
        pytest.param({"a.b/1": False, "c.d/1": False}, "e.f/1", "c.d/1", id="of several with most, the newest"),
        pytest.param({"a.b/1": False, "c.d/1": True, "c.d/2": True, "e.f/1": False}, "g.h/1", "e.f/1", id="that can"),
        pytest.param({"a.b/1": False, "a.b/2": False}, "b/3", "a.b/2", id="a domain is the whole of it"),
        pytest.param({}, "a.b/1", "", id="none"),
    ],
)
def test_which_one_loses_its_place(taken: dict[str, bool], name: str, loser: str) -> None:
    assert spare(name, taken) == loser


@pytest.mark.parametrize(
    ("more", "fewer", "exchanges"),
    [(128, 128, 0), (128, 127, 0), (129, 127, 1), (130, 126, 2), (131, 125, 3), (2, 1, 0), (3, 1, 1), (256, 0, 128)],
)
def test_domains_that_go_on_registering_exchange_places_until_they_are_even(
    more: int, fewer: int, exchanges: int
) -> None:
    """One that loses a name registers it again as often as it may."""
    taken = dict.fromkeys([*names("few.com", fewer), *names("many.com", more)], False)
    count = 0
    for number in range(200):
        for domain in ("many.com", "few.com"):
            new = f"{domain}/again{number}"
            if loser := spare(new, taken):
                del taken[loser]
                taken[new] = False
                count += 1
    assert count == exchanges


def test_a_refusal_lists_in_sums_what_has_the_places_and_the_remedy() -> None:
    scenario = full(MAX_NAMES, *(f"d{number}.example.com/r" for number in range(7)))
    text = str(refusal(scenario, f"{MANY}/a"))
    assert text.startswith(f"{MANY}/a: this node has 256 resource names, which is the limit: 249 of {MANY}, 1 of d0.")
    assert text.endswith(
        "3 of 3 more domains; stop device plugins that it does not need, and delete the NodeDevices of plugins that are gone"
    )
    # all refusals have one text together
    assert refusal(scenario, f"{MANY}/a").of_all == refusal(scenario, f"{MANY}/b").of_all


class TestFromBeforeThereWasABound:
    def test_the_newest_that_nobody_needs_have_to_go(self) -> None:
        scenario = node(*names(MANY, MAX_NAMES + 2))
        scenario.cordon(f"{MANY}/r257", ["d0"])
        assert scenario.manager.places.beyond() == [f"{MANY}/r256", f"{MANY}/r255"]
        scenario.happens("table.displaced", scenario.manager.places.beyond(), "")
        displaced = [name for name, each in scenario.manager.resources.items() if each.presence.lost_to is not None]
        assert displaced == [f"{MANY}/r255", f"{MANY}/r256"]

    def test_a_domain_with_few_keeps_its_own_however_new_they_are(self) -> None:
        scenario = node(*names(MANY, MAX_NAMES), *names(FEW, 20))
        assert {*scenario.manager.places.beyond()} == {*names(MANY, MAX_NAMES)[-20:]}
        scenario = node(*names(MANY, MAX_NAMES), *names(FEW, MAX_NAMES))
        gone = scenario.manager.places.beyond()
        assert len([name for name in gone if name.startswith(MANY)]) == len(gone) / 2 == MAX_NAMES / 2

    def test_where_all_are_needed_all_stay(self) -> None:
        scenario = node(*names(MANY, MAX_NAMES + 2))
        for name in scenario.manager.resources:
            scenario.cordon(name, ["d0"])
        assert scenario.manager.places.beyond() == []


def test_places_of_several_sources_count_the_names_of_all_and_the_first_may_take_any() -> None:
    one, two, three = node(f"{MANY}/a"), node(f"{MANY}/a", f"{FEW}/b"), node(f"{FEW}/c")
    two.manager.resources[f"{MANY}/a"].use.holders["d0"] = "uid"
    given_up: list[tuple[str, list[str], str]] = []

    def displace(who: str) -> resource_name_limit.Displace:
        return lambda names, by: given_up.append((who, [*names], by))

    all_places = [each.manager.places for each in (one, two, three)]
    resource_name_limit.share(all_places, [displace("two"), displace("three")])
    # needed is what one of them needs
    needed = {f"{MANY}/a": True, f"{FEW}/b": False, f"{FEW}/c": False}
    assert [each.taken() for each in all_places] == [needed] * 3
    all_places[0].displace_others([f"{FEW}/c"], "x.com/y")
    assert given_up == [("two", [f"{FEW}/c"], "x.com/y"), ("three", [f"{FEW}/c"], "x.com/y")]
    all_places[1].displace_others([f"{FEW}/c"], "x.com/y")
    assert len(given_up) == 2
