"""The fleet: in which words nodes do not fit. `test_one_planner` tries which ones fit."""

from dataclasses import replace

import pytest
from nodedevice_api.parts import PartRules, Placement
from nodedevice_kube.planner import MOST_CONTAINERS, Need
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.objects.bound_pod import PodNeeds
from nodedevice_operator.objects.node_parts import NodeParts, PodHolding

from tests.fakes.steps import finished
from tests.unit.operator.extender.fleets import MEM, fleet, given, needs, node, reason

DISTINCT = PartRules(Placement.DISTINCT_PARENTS)
ANY = PartRules(Placement.ANY)


@pytest.mark.parametrize(
    ("record", "wanted", "expected"),
    [
        pytest.param(node("a", 30, 30), needs(40), "no device has 40 of {} free; the most is 30", id="on none"),
        pytest.param(node("a"), needs(1), "no device has 1 of {} free; the most is 0", id="no GPU listed"),
        pytest.param(node("a", 40, 30), needs(40, 40), "80 of {} needed, and 70 are free", id="too little in all"),
        pytest.param(
            node("a", 40, 30, 20),
            needs(40, 40),
            "no device has 40 of {} free for container c1 besides the other containers of its pod; the most is 30",
            id="two containers, and one GPU for them",
        ),
        pytest.param(
            *(node("a", 5, 0, 0, rules=DISTINCT), needs(2), "fewer than 2 devices have one of {} free; the most is 1"),
            id="one of each, and there is one GPU",
        ),
        pytest.param(node("a", 30, 30, rules=ANY), needs(61), "61 of {} needed, and 60 are free", id="any, too few"),
        pytest.param(node("a", rules=None), needs(61), "", id="devices without parts: the scheduler counts them"),
        pytest.param(
            node("a", 80, 60, sm_percent=1, holders={"x": (PodHolding(0, 1), PodHolding(1, 1))}),
            needs(10, sm_percent=50),
            "no device has 10 of {} free and 50 percent of its multiprocessors left",
            id="multiprocessors of a pod that is not known",
        ),
    ],
)
def test_fits(record: NodeParts, wanted: PodNeeds, expected: str) -> None:
    known = fleet(record, node("with-parts", 0))
    assert reason(known, wanted) == expected.format(MEM)
    assert isinstance(known.assign("p", wanted, "a", 0), NotFitting) == bool(expected)


@pytest.mark.parametrize(
    ("record", "wanted", "expected"),
    [
        pytest.param(node("b", 80), needs(1), f"the node has no NodeDevice of {MEM}", id="no NodeDevice"),
        pytest.param(node("a", 80, delivery="kubelet"), needs(1), "delivery kubelet", id="the kubelet allocates"),
    ],
)
def test_nodes_where_no_preemption_helps(record: NodeParts, wanted: PodNeeds, expected: str) -> None:
    found = finished(fleet(record).filter("p", wanted, ["a"], 0))
    assert (found.fitting, found.failed) == ([], {})
    assert expected in found.unresolvable["a"]


def test_an_annotation_that_is_none_matters_where_percent_counts_alone() -> None:
    wanted = needs(1, 2, problem="bad annotation")
    known = fleet(node("a", 80, sm_percent=1), node("b", 80))
    found = finished(known.filter("p", wanted, ["a", "b"], 0))
    assert (found.fitting, found.unresolvable) == (["b"], {"a": "bad annotation"})
    assert known.assign("p", wanted, "a", 0) == NotFitting("bad annotation")
    assert known.assign("p", wanted, "b", 0) == {MEM: {"c0": {"g0": 1}, "c1": {"g0": 2}}}
    assert [known.fits_without(wanted, name, frozenset()) for name in "ab"] == [False, True]


def test_a_resource_without_parts_beside_one_that_has_them() -> None:
    both = PodNeeds((("rdma/hca", (Need(1, container="c0"),)), (MEM, (Need(50, container="c0"),))))
    known = fleet(node("a", 80))
    assert known.assign("p", both, "a", 0) == given("g0", 50)
    assert known.fits_without(both, "a", frozenset())
    known.promise("p", both, "a", given("g0", 50), 0)
    assert not known.fits_without(both, "a", frozenset())


def test_a_resource_that_has_parts_nowhere_is_the_schedulers() -> None:
    other = PodNeeds((("rdma/hca", (Need(1, container="c0"),)),))
    known = fleet(node("a", 80))
    assert finished(known.filter("p", other, ["a", "b"], 0)).fitting == ["a", "b"]
    assert known.assign("p", other, "b", 0) == {}
    assert known.promised_units() == {}


class TestWithoutAStatus:
    """A NodeDevice that was just made, or made again: whether its devices have parts is not known, so no pod fits yet."""

    UNKNOWN = replace(node("a", rules=None), has_status=False)
    REASON = f"the node's agent has not reported {MEM} yet"

    def test_no_pod_fits(self) -> None:
        known = fleet(self.UNKNOWN, node("b", 80))
        found = finished(known.filter("probe", needs(1), ["a", "b"], 0))
        assert (found.fitting, found.unresolvable) == (["b"], {"a": self.REASON})
        assert known.assign("probe", needs(1), "a", 0) == NotFitting(self.REASON)

    def test_its_first_status_decides(self) -> None:
        known = fleet(self.UNKNOWN)
        known.node_changed(node("a", rules=None), 1)
        # a resource without parts is kube-scheduler's alone again
        assert finished(known.filter("probe", needs(1), ["elsewhere"], 1)).fitting == ["elsewhere"]

    def test_the_only_node_with_parts_that_is_made_again_is_no_resource_without_parts(self) -> None:
        known = fleet(node("a", 80))
        known.node_gone(node("a").name, 10)
        assert reason(known, needs(1), now=44) == f"the node has no NodeDevice of {MEM}"
        known.node_changed(self.UNKNOWN, 44)
        assert reason(known, needs(1), now=44) == self.REASON
        known.node_changed(node("a", 80), 44)
        # the time of the first one is over, and the count is right
        assert reason(known, needs(81), now=100).startswith("no device has 81")
        known.node_gone(node("a").name, 100)
        assert reason(known, needs(1), now=135) == "", "no node has made it again"


class TestAPodOfManyContainers:
    """One of 2,500 kept the extender, and so the scheduler, from everybody else for minutes."""

    def test_is_refused_whole_and_for_good(self) -> None:
        known = fleet(*(node(name, *[320] * 8) for name in "abc"))
        many = needs(*[1] * (MOST_CONTAINERS + 1))
        found = finished(known.filter("p", many, ["a", "b", "c"], 0))
        assert found.fitting == []
        assert found.unresolvable.keys() == {"a", "b", "c"}, "no preemption helps"
        expected = f"{MOST_CONTAINERS + 1} containers of the pod ask for {MEM}; {MOST_CONTAINERS} may"
        assert set(found.unresolvable.values()) == {expected}
        assert known.assign("p", many, "a", 0) == NotFitting(expected)
        assert not known.fits_without(many, "a", frozenset())

    def test_of_a_resource_without_parts_it_is_kube_schedulers_affair(self) -> None:
        many = needs(*[1] * (MOST_CONTAINERS + 1))
        assert finished(fleet(node("a", rules=None)).filter("p", many, ["a"], 0)).fitting == ["a"]

    def test_of_a_node_of_many_devices_there_may_be_less(self) -> None:
        known, many = fleet(node("a", *[2] * 100)), needs(*[1] * 100)
        expected = f"{MEM}: 100 containers of the pod ask for parts of 100 devices, and 40 may"
        assert finished(known.filter("p", many, ["a"], 0)).failed == {"a": expected}
        assert known.assign("p", many, "a", 0) == NotFitting(expected)
        assert not known.fits_without(many, "a", frozenset()), "nor once others are gone"
        assert isinstance(known.assign("p", needs(*[1] * 40), "a", 0), dict)
        few = fleet(node("a", *[80] * 8))
        assert isinstance(few.assign("p", needs(*[1] * MOST_CONTAINERS), "a", 0), dict)
