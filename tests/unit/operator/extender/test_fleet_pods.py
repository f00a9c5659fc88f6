"""What the fleet counts of a pod that is asked about, bound or shown more than once, and of one that fits by its percent alone."""

import pytest
from nodedevice_kube.planner import Need
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.tentative import TENTATIVE_SECONDS
from nodedevice_operator.objects.bound_pod import PodNeeds
from nodedevice_operator.objects.node_parts import PodHolding

from tests.unit.operator.extender.fleets import MEM, bind, finished, fleet, given, needs, node, pod, reason


def test_a_pod_that_a_status_has_listed_stays_listed_when_it_is_shown_otherwise() -> None:
    """Its containers have ended, and what it had is free."""
    known = fleet(node("a", 30, holders={"p": (PodHolding(0, 50),)}))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.node_changed(node("a", 80), 0)
    known.pod_changed(pod("p", needs(50, sm_percent=10), assigned=given("g0", 50)), 0)
    assert reason(known, needs(80)) == ""


def test_a_pod_that_is_listed_on_one_node_and_shown_on_another_counts_there() -> None:
    known = fleet(node("a", 30, holders={"p": (PodHolding(0, 50),)}), node("b", 80))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.pod_changed(pod("p", needs(50), "b", assigned=given("g0", 50)), 0)
    assert reason(known, needs(40), "b").endswith("the most is 30")


def test_a_pod_that_a_status_lists_before_its_bind_is_sent_counts_once() -> None:
    """Of the resource that is listed; another one of it is not listed yet."""
    both = PodNeeds((("rdma/hca", (Need(1, container="c0"),)), (MEM, (Need(20, container="c0"),))))
    known = fleet(node("a", 60, holders={"p": (PodHolding(0, 20),)}))
    known.promise("p", both, "a", given("g0", 20), 0)
    assert reason(known, needs(60)) == ""


def test_what_a_pod_holds_before_its_bind_ends_when_it_is_shown_elsewhere() -> None:
    known = fleet(node("a", 80), node("b", 80))
    assert finished(known.filter("p", needs(50), ["b"], 0)).fitting == ["b"]
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    assert reason(known, needs(80), "b") == ""


def test_a_pod_that_is_gone_and_comes_to_be_bound_after_all_counts_on_its_new_node_alone() -> None:
    known = fleet(node("a", 80), node("b", 80))
    bind(known, "p", needs(50))
    known.pod_gone("p", 0)
    assert finished(known.filter("p", needs(20), ["a", "b"], 0)).fitting == ["a", "b"], "nothing is promised to it"
    bind(known, "p", needs(50), "b")
    # the next bind there shows what is left
    bind(known, "q", needs(30))
    assert reason(known, needs(50)) == ""
    assert reason(known, needs(40), "b").endswith("the most is 30")


def test_a_pod_holds_other_parts_than_those_that_others_hold() -> None:
    known = fleet(node("a", 80, 40))
    for name, count in (("p", 50), ("q", 30)):
        assert finished(known.filter(name, needs(count), ["a"], 0)).fitting == ["a"]
    # 50 and 30 of the larger one
    assert reason(known, needs(40)) == ""


def test_a_score_counts_what_others_hold_until_that_is_over() -> None:
    known = fleet(node("a", 80), node("b", 80))
    finished(known.filter("other", needs(50), ["a"], 0))
    assert known.score("p", needs(20), ["a", "b"], "spread", TENTATIVE_SECONDS - 0.1) == [("a", 5), ("b", 10)]
    assert known.score("p", needs(20), ["a", "b"], "spread", TENTATIVE_SECONDS) == [("a", 10), ("b", 9)]


def test_a_score_is_the_same_again() -> None:
    """What the pod holds by the first one does not count against itself."""
    known = fleet(node("a", 80), node("b", 80))
    first = known.score("p", needs(20), ["a", "b"], "spread", 0)
    assert known.score("p", needs(20), ["a", "b"], "spread", 0) == first


def test_a_pod_that_fits_on_no_node_that_is_scored_holds_nothing() -> None:
    known = fleet(node("a", 20))
    assert known.score("p", needs(50), ["a"], "binpack", 0) == [("a", 10)]
    assert [*known._tentative.nodes()] == []
    assert reason(known, needs(20)) == ""


def test_percent_counts_in_a_bind_and_in_a_preemption() -> None:
    known = fleet(node("a", 80, sm_percent=1))
    bind(known, "p", needs(10, sm_percent=60))
    assert isinstance(known.assign("q", needs(10, sm_percent=50), "a", 0), NotFitting)
    assert known.assign("q", needs(10, sm_percent=40), "a", 0) == given("g0", 10)
    assert not known.fits_without(needs(10, sm_percent=50), "a", frozenset())
    assert known.fits_without(needs(10, sm_percent=50), "a", frozenset({"p"}))


@pytest.mark.parametrize(("sm_percent", "problem", "fits"), [(1, "bad", False), (1, "", True), (None, "bad", True)])
def test_an_annotation_that_is_none_matters_to_a_preemption_where_percent_counts(
    sm_percent: int | None, problem: str, fits: bool
) -> None:
    known = fleet(node("a", 80, sm_percent=sm_percent))
    assert known.fits_without(needs(1, problem=problem), "a", frozenset()) is fits
