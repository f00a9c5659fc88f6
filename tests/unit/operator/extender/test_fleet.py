"""The fleet: which parts pods get, and what is counted from when until when. `test_fleet_moves` tries all orders of events."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_kube.planner import Need
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.promises import GONE_SECONDS
from nodedevice_operator.extender.tentative import TENTATIVE_SECONDS
from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds
from nodedevice_operator.objects.node_parts import NodeParts, PodHolding

from tests.fakes.steps import finished
from tests.unit.operator.extender.fleets import MEM, bind, fleet, given, needs, node, pod, reason

# a filter takes these in several steps
MANY = [f"n{number}" for number in range(40)]


def test_a_filtered_pod_holds_its_parts_for_a_while_for_filters_and_not_for_binds() -> None:
    known = fleet(node("a", 80))
    assert finished(known.filter("p", needs(50), ["a"], 0)).fitting == ["a"]
    assert finished(known.filter("q", needs(50), ["a"], TENTATIVE_SECONDS - 0.1)).fitting == []
    assert known.assign("q", needs(50), "a", 1) == given("g0", 50), "a bind checks promises alone"
    assert finished(known.filter("p", needs(50), ["a"], 1)).fitting == ["a"], "its own next filter"
    assert finished(known.filter("q", needs(50), ["a"], 1 + TENTATIVE_SECONDS)).fitting == ["a"]


def test_a_pod_that_is_filtered_again_in_the_midst_of_a_filter_is_held_once() -> None:
    """kube-scheduler asks again when an answer has taken too long for it."""
    known = fleet(*(node(name, 80) for name in MANY))
    first_node, last = MANY[0], MANY[-1]
    for name in MANY[1:]:
        known.node_changed(node(name, 0), 0)
    first = known.filter("p", needs(*[1] * 64), MANY, 0)
    next(first)
    known.node_changed(node(first_node, 0), 0)
    known.node_changed(node(last, 80), 0)
    assert finished(known.filter("p", needs(*[1] * 64), [last], 0)).fitting == [last]
    known.node_changed(node(first_node, 80), 0)
    known.node_changed(node(last, 0), 0)
    finished(first)
    known.node_changed(node(last, 80), 0)
    # what is held ends, and nothing of it is left over
    known.expire(10_000)
    for name in (first_node, last):
        assert finished(known.filter("q", needs(80), [name], 10_000)).fitting == [name]
        known.expire(20_000)


def test_a_pod_that_is_bound_in_the_midst_of_its_filter_counts_once() -> None:
    known = fleet(*(node(name, 80 if name == MANY[0] else 0) for name in MANY))
    first = known.filter("p", needs(*[1] * 60), MANY, 0)
    next(first)
    bind(known, "p", needs(20), MANY[0])
    finished(first)
    assert finished(known.filter("q", needs(60), MANY, 0)).fitting == [MANY[0]]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda known: known.node_changed(node("a", 0, 80), 1), id="a status has fewer parts"),
        pytest.param(
            lambda known: known.pod_changed(pod("q", needs(80), assigned=given("g0", 80)), 1), id="a bound pod has them"
        ),
        pytest.param(lambda known: known.promise("q", needs(80), "a", given("g0", 80), 1), id="they are promised"),
    ],
)
def test_a_bind_gets_the_parts_that_its_filter_held_unless_something_else_may_have_them(change: Any) -> None:
    known = fleet(node("a", 80, 80))
    for name in ("o", "p"):
        assert finished(known.filter(name, needs(40), ["a"], 0)).fitting == ["a"]
    assert known.assign("p", needs(40), "a", 1) == given("g0", 40)
    assert known.assign("p", needs(50), "a", 1) == given("g0", 50), "another pod of that name"
    change(known)
    assert known.assign("p", needs(40), "a", 1) == given("g1", 40)


def test_a_bind_as_held_changes_nothing_for_others() -> None:
    known = fleet(node("a", 80, 40), node("b", 30))
    finished(known.filter("p", needs(50), ["a"], 0))
    assert reason(known, needs(41)).endswith("the most is 40")
    bind(known, "p", needs(50))
    assert reason(known, needs(41)).endswith("the most is 40")
    # bound elsewhere than it was held
    finished(known.filter("q", needs(30), ["a"], 0))
    bind(known, "q", needs(30), "b")
    assert reason(known, needs(40)) == ""


def test_a_filter_names_the_best_node_alone_and_equal_ones_in_turn() -> None:
    known = fleet(node("a", 80, 80), node("b", 45, 80), node("c", 45, 10), node("d", 45, 10), node("e", 10, 10))

    def best(name: str, count: int, policy: Any = "binpack", of: Collection[str] = (*"abcde", "unknown")) -> list[str]:
        found = finished(known.filter(name, needs(count), of, 0, policy, names_best=True))
        assert not found.failed or not found.fitting, "reasons of others are of no use then"
        return found.fitting

    assert best("p", 40) == ["c"]
    assert best("q", 40) == ["d"], "c has none left until p is bound"
    assert best("r", 40, of=["a"]) == ["a"]
    assert best("s", 10, "spread") == ["b"], "a has less left until r is bound"
    # e and c have the same: one of them first, then the other
    known = fleet(node("a", 80), node("b", 80))
    for number, expected in enumerate("abab"):
        assert best(f"p-{number}", 5) == [expected]
        known.expire(10_000)
    failed = finished(known.filter("t", needs(81), ["a", "b"], 0, names_best=True))
    assert (failed.fitting, set(failed.failed)) == ([], {"a", "b"})


def test_nodes_that_the_policy_does_not_tell_apart_are_all_named() -> None:
    """Whole devices have no parts: kube-scheduler's own scores decide."""
    known = fleet(node("a", 80, rules=None), node("b", 80, rules=None))
    assert finished(known.filter("p", needs(1), ["a", "b"], 0, names_best=True)).fitting == ["a", "b"]
    nothing = PodNeeds((("rdma/hca", (Need(1, container="c0"),)),))
    assert finished(known.filter("p", nothing, ["a", "b"], 0, names_best=True)).fitting == ["a", "b"]


def test_the_best_node_has_all_resources_of_the_pod() -> None:
    other = "example.com/other"
    known = fleet(node("a", 40), node("b", 80), node("c", 20))
    for name, free in (("a", 10), ("b", 60), ("c", 80)):
        record = replace(node(name, free), name=names.node_device_name(name, other), resource=other)
        known.node_changed(record, 0)
    both = PodNeeds(((other, (Need(20, container="c0"),)), (MEM, (Need(30, container="c0"),))))
    assert finished(known.filter("p", both, ["a", "b", "c"], 0, names_best=True)).fitting == ["b"]
    scores = dict(finished(known.score("p", both, ["a", "b", "c"], "binpack", 0)))
    assert scores["b"] == 10
    for policy in ("binpack", "spread"):
        assert finished(known.filter("q", both, ["a", "c"], 0, policy, names_best=True)).fitting == []


@pytest.mark.parametrize("is_shown", [True, False], ids=["a watch shows it elsewhere", "it is bound elsewhere"])
def test_parts_that_a_pod_holds_are_free_when_it_goes_elsewhere(is_shown: bool) -> None:
    known = fleet(node("a", 80), node("b", 80))
    finished(known.score("p", needs(50), ["a"], "binpack", 0))
    if is_shown:
        known.pod_changed(pod("p", needs(50), "b", assigned=given("g0", 50)), 0)
    else:
        bind(known, "p", needs(50), "b")
    assert finished(known.filter("q", needs(80), ["a", "b"], 0)).fitting == ["a"]


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
    known.pod_changed(pod("p", needs(50, sm_percent=10), assigned=given("g0", 50)), 0)
    assert reason(known, needs(80)) == "", "another change of the pod does not count it again"


def test_a_pod_that_a_status_lists_before_its_bind_is_sent_counts_once() -> None:
    both = PodNeeds((("rdma/hca", (Need(1, container="c0"),)), (MEM, (Need(20, container="c0"),))))
    known = fleet(node("a", 60, holders={"p": (PodHolding(0, 20),)}))
    known.promise("p", both, "a", given("g0", 20), 0)
    assert reason(known, needs(60)) == ""


def test_a_pod_that_is_gone_before_a_status_listed_it_counts_for_a_while() -> None:
    known = fleet(node("a", 80))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.pod_gone("p", 5)
    assert isinstance(known.assign("q", needs(40), "a", 5 + GONE_SECONDS - 0.1), NotFitting)
    assert known.assign("q", needs(80), "a", 5 + GONE_SECONDS) == given("g0", 80)


def test_a_pod_that_is_gone_and_is_bound_after_all_counts_on_its_new_node_alone() -> None:
    known = fleet(node("a", 80), node("b", 80))
    bind(known, "p", needs(50))
    known.pod_gone("p", 0)
    assert finished(known.filter("p", needs(20), ["a", "b"], 0)).fitting == ["a", "b"], "nothing is promised to it"
    bind(known, "p", needs(50), "b")
    # the next bind there shows what is left
    bind(known, "q", needs(30))
    assert reason(known, needs(50)) == ""
    assert reason(known, needs(40), "b").endswith("the most is 30")


def test_a_withdrawn_promise_stays_if_the_api_has_the_pod() -> None:
    known = fleet(node("a", 80))
    bind(known, "p", needs(50))
    known.withdraw("p")
    assert reason(known, needs(80)) == ""
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


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(pod("p", needs(50), assigned=given("g1", 50)), id="with parts of another device"),
        pytest.param(pod("p", needs(50)), id="without its parts"),
        pytest.param(pod("p", needs(20), assigned=given("g0", 20)), id="that needs less"),
        pytest.param(pod("p", needs(50), "b", assigned=given("g0", 50)), id="on another node"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "again"])
def test_a_pod_that_a_watch_shows_otherwise_counts_as_it_shows_it(shown: BoundPod, is_known: bool) -> None:
    known, other = fleet(node("a", 80, 80), node("b", 80)), fleet(node("a", 80, 80), node("b", 80))
    bind(known, "p", needs(50))
    if is_known:
        known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    for each in (known, other):
        each.pod_changed(shown, 0)
    assert _left(known) == _left(other)
    assert known.pods_on(shown.node) == [shown]


def _left(known: Fleet) -> dict[str, dict[str, int]]:
    found = {name: known.view(MEM, name) for name in ("a", "b")}
    return {name: view.free for name, view in found.items() if view is not None}


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


LIMITED = node("a", 80, 80, sm_percent=1)


@pytest.mark.parametrize(
    ("record", "assigned", "wanted", "fits"),
    [
        pytest.param(node("a", 60, 80), [needs(40)] * 2, needs(21), False, id="too many parts"),
        pytest.param(node("a", 60, 80, sm_percent=1), [needs(40)] * 2, needs(21), False, id="of percent too"),
        pytest.param(LIMITED, [needs(10, sm_percent=60)] * 2, needs(10, sm_percent=50), False, id="too many percent"),
        pytest.param(node("a", 80, 80), [needs(80)], needs(80), True, id="all parts"),
        pytest.param(LIMITED, [needs(10, sm_percent=100)], needs(10, sm_percent=100), True, id="all percent"),
    ],
)
def test_assignments_that_exceed_a_gpu_together_may_all_go_elsewhere(
    record: NodeParts, assigned: list[PodNeeds], wanted: PodNeeds, fits: bool
) -> None:
    known = fleet(record)
    for number, of in enumerate(assigned):
        known.pod_changed(pod(f"p{number}", of, assigned=given("g0", of.containers(MEM)[0].count)), 0)
    assert (reason(known, wanted) == "") is fits


HELD_BY_ANOTHER = node("a", 30, holders={"other": (PodHolding(0, 50),)})
STATIC = pod("p", needs(20), static_uid="hash")


@pytest.mark.parametrize(
    ("status", "shown", "left"),
    [
        pytest.param(node("a", 80, refused=("p",)), pod("p", needs(50)), 80, id="refused for ever"),
        pytest.param(node("a", 60, holders={"hash": (PodHolding(0, 20),)}), STATIC, 60, id="listed as a static pod"),
        pytest.param(HELD_BY_ANOTHER, STATIC, 10, id="a static pod that is not listed"),
        pytest.param(HELD_BY_ANOTHER, pod("p", needs(20)), 10, id="not listed, as another is"),
    ],
)
@pytest.mark.parametrize("pod_first", [True, False])
def test_a_pod_counts_beside_those_of_a_status(status: NodeParts, shown: BoundPod, left: int, pod_first: bool) -> None:
    known = fleet(node("a", 80) if pod_first else status)
    known.pod_changed(shown, 0)
    if pod_first:
        known.node_changed(status, 0)
    assert reason(known, needs(left)) == ""
    assert reason(known, needs(left + 1))


def test_scores_prefer_the_tightest_gpu_then_the_fullest_node() -> None:
    known = fleet(node("a", 80, 80), node("b", 45, 80), node("c", 45, 10), node("d", 45, 10))
    nodes = ["a", "b", "c", "d"]
    # by their rank, of which there are three: c and d have the same
    assert dict(finished(known.score("p", needs(40), nodes, "binpack", 0))) == {"a": 3, "b": 6, "c": 10, "d": 9}
    # c has none left for another pod until that one is bound
    assert max(finished(known.score("q", needs(40), nodes, "binpack", 0)), key=lambda each: each[1])[0] == "d"
    spread = dict(finished(known.score("r", needs(40), nodes, "spread", TENTATIVE_SECONDS)))
    assert max(spread, key=lambda name: spread[name]) in ("a", "b")
    assert finished(known.score("r", needs(40), [], "spread", 9)) == []
    # what the pod holds by the first one does not count against itself
    assert dict(finished(known.score("r", needs(40), nodes, "spread", TENTATIVE_SECONDS))) == spread


def test_percent_of_multiprocessors_limits_what_a_gpu_takes() -> None:
    known = fleet(node("a", 80, sm_percent=1))
    assert bind(known, "p", needs(10, sm_percent=60)) == given("g0", 10)
    assert "50 percent of its multiprocessors" in reason(known, needs(10, sm_percent=50))
    assert isinstance(known.assign("q", needs(10, sm_percent=50), "a", 0), NotFitting)
    assert not known.fits_without(needs(10, sm_percent=50), "a", frozenset())
    assert known.fits_without(needs(10, sm_percent=50), "a", frozenset({"p"}))
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


def test_a_node_that_is_gone_and_comes_back() -> None:
    known = fleet(node("a", 80), node("b", 80))
    known.node_gone(names.node_device_name("a", MEM), 0)
    known.node_gone("never-there", 0)
    assert "no NodeDevice" in reason(known, needs(1))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.node_changed(node("a", 80), 0)
    assert reason(known, needs(31))
