"""The fleet: which parts pods get, and what is counted from when until when."""

import pytest
from nodedevice_api import names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_api.parts import PartRules
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.promises import GONE_SECONDS
from nodedevice_operator.extender.tentative import TENTATIVE_SECONDS
from nodedevice_operator.objects.node_parts import PodHolding

from tests.unit.operator.extender.fleets import MEM, SAME, bind, finished, fleet, given, needs, node, pod, reason


def test_what_a_pod_holds_tentatively_ends_to_the_second() -> None:
    known = fleet(node("a", 80))
    assert finished(known.filter("p", needs(50), ["a"], 0)).fitting == ["a"]
    assert finished(known.filter("q", needs(50), ["a"], TENTATIVE_SECONDS - 0.1)).fitting == []
    assert finished(known.filter("q", needs(50), ["a"], TENTATIVE_SECONDS)).fitting == ["a"]


def test_a_promise_counts_until_a_status_lists_it() -> None:
    known = fleet(node("a", 80))
    assert bind(known, "p", needs(50)) == given("g0", 50)
    assert known.promised_units() == {MEM: 50}
    assert reason(known, needs(40)).endswith("the most is 30")
    known.confirm("p")
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    assert reason(known, needs(40)).endswith("the most is 30")
    known.node_changed(node("a", 30, holders={"p": (PodHolding(0, 50),)}), 0)
    assert reason(known, needs(40)).endswith("the most is 30")
    assert known.promised_units() == {}
    known.node_changed(node("a", 80), 0)
    assert reason(known, needs(80)) == "", "listed once and no more: its containers have ended"


@pytest.mark.parametrize("is_pod_first", [True, False])
def test_status_and_pod_in_either_order(is_pod_first: bool) -> None:
    known = fleet(node("a", 80))
    status = node("a", 30, holders={"p": (PodHolding(0, 50),)})
    record = pod("p", needs(50), assigned=given("g0", 50))
    if is_pod_first:
        known.pod_changed(record, 0)
        known.node_changed(status, 0)
    else:
        known.node_changed(status, 0)
        known.pod_changed(record, 0)
    assert reason(known, needs(31)).endswith("the most is 30")


def test_a_pod_that_is_gone_before_a_status_listed_it_counts_for_a_while() -> None:
    known = fleet(node("a", 80))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.pod_gone("p", 5)
    assert reason(known, needs(40), now=5 + GONE_SECONDS - 0.1)
    assert isinstance(known.assign("q", needs(40), "a", 5 + GONE_SECONDS - 0.1), NotFitting)
    assert known.assign("q", needs(80), "a", 5 + GONE_SECONDS) == given("g0", 80)
    assert reason(known, needs(80), now=5 + GONE_SECONDS) == ""
    assert known._promises.by_uid == {}


@pytest.mark.parametrize(
    "assigned",
    [
        pytest.param({}, id="none"),
        pytest.param(given("g0", 49), id="too few"),
        pytest.param(given("gone", 50), id="of a GPU that is gone"),
        pytest.param({MEM: {"c0": {"g0": 25, "g1": 25}}}, id="of two GPUs"),
        pytest.param(given("g2", 50), id="more than there are"),
    ],
)
def test_a_pod_whose_node_chooses_counts_on_each_gpu_that_has_room(assigned: Assigned) -> None:
    known = fleet(node("a", 80, 70, 40))
    known.pod_changed(pod("p", needs(50), assigned=assigned), 0)
    assert reason(known, needs(41)).endswith("the most is 40")


def test_assignments_that_exceed_the_percent_of_a_gpu_may_go_elsewhere_too() -> None:
    known = fleet(node("a", 80, 80, sm_percent=1))
    for uid in "pq":
        known.pod_changed(pod(uid, needs(10, sm_percent=60), assigned=given("g0", 10)), 0)
    assert reason(known, needs(10, sm_percent=50)), "either may be on the other GPU"
    assert reason(fleet(node("a", 80, 80, sm_percent=1)), needs(10, sm_percent=50)) == ""


@pytest.mark.parametrize("sm_percent", [None, 1])
def test_assignments_that_exceed_a_gpu_together_may_all_go_elsewhere(sm_percent: int | None) -> None:
    known = fleet(node("a", 60, 80, sm_percent=sm_percent))
    for uid in "pq":
        known.pod_changed(pod(uid, needs(40), assigned=given("g0", 40)), 0)
    assert reason(known, needs(21)).endswith("the most is 20")


def test_who_is_assigned_all_of_a_gpu_leaves_the_other_ones() -> None:
    known = fleet(node("a", 80, 80))
    bind(known, "p", needs(80))
    assert reason(known, needs(80)) == ""
    known = fleet(node("a", 80, 80, sm_percent=1))
    known.pod_changed(pod("p", needs(10, sm_percent=100), assigned=given("g0", 10)), 0)
    assert reason(known, needs(10, sm_percent=100)) == ""


def test_a_single_part_of_a_gpu_that_is_gone_may_come_from_any_other() -> None:
    known = fleet(node("a", 80, 70))
    known.pod_changed(pod("p", needs(1), assigned=given("gone", 1)), 0)
    assert reason(known, needs(80)).endswith("the most is 79")


def test_a_pod_that_is_refused_for_ever_counts_for_nothing() -> None:
    known = fleet(node("a", 80, refused=("p",)))
    known.pod_changed(pod("p", needs(50)), 0)
    assert reason(known, needs(80)) == ""


def test_withdrawn_promises_are_free_at_once_unless_the_api_has_the_pod() -> None:
    known = fleet(node("a", 80))
    bind(known, "p", needs(50))
    known.withdraw("p")
    assert reason(known, needs(80)) == ""
    finished(known.filter("probe", needs(81), ["a"], 0))
    bind(known, "p", needs(50))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.withdraw("p")
    assert reason(known, needs(31))


def test_while_a_bind_is_not_decided_only_its_node_is_offered_and_the_same_parts() -> None:
    known = fleet(node("a", 80, 80), node("b", 80))
    first = bind(known, "p", needs(50))
    found = finished(known.filter("p", needs(50), ["a", "b"], 1))
    assert found.fitting == ["a"]
    assert found.unresolvable == {"b": "the outcome of the pod's bind to node a is still unknown"}
    assert known.assign("p", needs(50), "a", 1) == first
    assert isinstance(known.assign("p", needs(50), "b", 1), NotFitting)


def test_a_filtered_pod_holds_its_parts_before_its_bind_for_filters_and_not_for_binds() -> None:
    known = fleet(node("a", 80))
    assert finished(known.filter("p", needs(50), ["a"], 0)).fitting == ["a"]
    assert finished(known.filter("q", needs(50), ["a"], 1)).fitting == []
    assert known.assign("q", needs(50), "a", 1) == given("g0", 50), "a bind checks promises alone"
    assert finished(known.filter("p", needs(50), ["a"], 1)).fitting == ["a"], "its own next filter"
    assert finished(known.filter("q", needs(50), ["a"], 1 + TENTATIVE_SECONDS)).fitting == ["a"]


def test_scores_prefer_the_tightest_gpu_then_the_fullest_node() -> None:
    known = fleet(node("a", 80, 80), node("b", 45, 80), node("c", 45, 10), node("d", 45, 10))
    nodes = ["a", "b", "c", "d"]
    scores = dict(known.score("p", needs(40), nodes, "binpack", 0))
    assert scores["c"] == 10
    # the others by their rank, of which there are three: c and d have the same
    assert scores == {"a": 3, "b": 6, "c": 10, "d": 9}
    # c has none left for another pod until that one is bound
    assert max(known.score("q", needs(40), nodes, "binpack", 0), key=lambda each: each[1])[0] == "d"
    spread = dict(known.score("r", needs(40), nodes, "spread", TENTATIVE_SECONDS))
    assert max(spread, key=lambda name: spread[name]) in ("a", "b")
    assert known.score("r", needs(40), [], "spread", 9) == []


def test_percent_of_multiprocessors_limits_what_a_gpu_takes() -> None:
    known = fleet(node("a", 80, sm_percent=1))
    assert bind(known, "p", needs(10, sm_percent=60)) == given("g0", 10)
    assert "50 percent of its multiprocessors" in reason(known, needs(10, sm_percent=50))
    assert reason(known, needs(10)) == "", "ten parts have ten percent"
    known.pod_changed(pod("p", needs(10, sm_percent=60), assigned=given("g0", 10)), 0)
    known.node_changed(node("a", 70, sm_percent=1, holders={"p": (PodHolding(0, 10),)}), 0)
    assert reason(known, needs(10, sm_percent=40)) == ""
    assert reason(known, needs(10, sm_percent=41))


def test_a_container_has_the_percent_that_its_init_container_had_and_other_pods_have_not() -> None:
    wanted = needs(10, 10, inits=1, sm_percent=60)
    known = fleet(node("a", 80, sm_percent=1))
    assert bind(known, "p", wanted) == {MEM: {"c0": {"g0": 10}, "c1": {"g0": 10}}}
    assert reason(known, needs(1))
    known.node_changed(node("a", 70, sm_percent=1, holders={"p": (PodHolding(0, 10, (10, 10)),)}), 0)
    assert reason(known, needs(1)), "the device plugin counts both"
    known.withdraw("p")
    known.node_changed(node("a", 80, sm_percent=1), 0)
    assert reason(known, needs(10, 10, inits=1, sm_percent=60)) == ""
    bind(known, "q", needs(10, sm_percent=20))
    assert reason(known, wanted), "q could come to the node when init container and container are counted"
    known.withdraw("q")
    assert "60 percent" not in reason(known, needs(10, 10, inits=0, sm_percent=50))
    assert reason(known, needs(10, 10, inits=0, sm_percent=60))


def test_a_node_that_is_gone_and_comes_back() -> None:
    known = fleet(node("a", 80), node("b", 80))
    known.node_gone(names.node_device_name("a", MEM), 0)
    known.node_gone("never-there", 0)
    assert "no NodeDevice" in reason(known, needs(1))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.node_changed(node("a", 80), 0)
    assert reason(known, needs(31))


@pytest.mark.parametrize("rules", [SAME, None])
def test_of_a_resource_that_no_node_has_nothing_stays(rules: PartRules | None) -> None:
    known = fleet(node("a", 80, rules=rules), node("b", 80, rules=rules))
    for name in "ab":
        assert known._views.keys() == {MEM}
        known.node_gone(node(name).name, 0)
        assert known.fits_without(needs(1), name, frozenset()) is (rules is None)
    known.expire(3600)
    assert (known._views, known._with_parts, known._names, known._resources) == ({}, {}, {}, {})


@pytest.mark.parametrize("is_pod_first", [True, False])
def test_a_mirror_pod_is_counted_under_its_static_uid(is_pod_first: bool) -> None:
    known = fleet(node("a", 80))
    status = node("a", 30, holders={"hash": (PodHolding(0, 50),)})
    if not is_pod_first:
        known.node_changed(status, 0)
    known.pod_changed(pod("p", needs(50), static_uid="hash"), 0)
    if is_pod_first:
        known.node_changed(status, 0)
    assert (reason(known, needs(30)), known.promised_units()) == ("", {})


@pytest.mark.parametrize("static_uid", ["", "hash"])
def test_a_pod_counts_beside_those_that_a_status_lists(static_uid: str) -> None:
    known = fleet(node("a", 30, holders={"other": (PodHolding(0, 50),)}))
    known.pod_changed(pod("p", needs(20), static_uid=static_uid), 0)
    assert reason(known, needs(20)).endswith("the most is 10")
