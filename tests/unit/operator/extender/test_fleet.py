"""The fleet: which nodes fit, in which words others do not, which parts pods get, and what is counted when."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from nodedevice_api import assigned_parts, names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement
from nodedevice_common.part_plan import MOST_CONTAINERS
from nodedevice_operator.extender.fleet import Fleet, NotFitting
from nodedevice_operator.extender.promises import GONE_SECONDS, TENTATIVE_SECONDS
from nodedevice_operator.objects.bound_pod import (
    BoundPod,
    BoundPodSchema,
    ContainerNeed,
    PodNeeds,
    bound_pod,
    pod_needs,
)
from nodedevice_operator.objects.node_parts import _BYTES_OF_ENTRY, NodeParts, ParentParts, PodHolding, node_parts
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

MEM = "aliyun.com/gpu-mem"
SAME = PartRules(Placement.SAME_PARENT)


def needs(*counts: int, sm_percent: int | None = None, problem: str = "", inits: int = 0) -> PodNeeds:
    """One container for each count, the first `inits` of them init containers."""
    containers = tuple(ContainerNeed(f"c{i}", count, i < inits) for i, count in enumerate(counts))
    return PodNeeds(((MEM, containers),), sm_percent, problem)


def node(
    name: str,
    *available: int,
    holders: Mapping[str, tuple[PodHolding, ...]] | None = None,
    rules: PartRules | None = SAME,
    runtime: str = "nri",
    sm_percent: int | None = None,
    refused: tuple[str, ...] = (),
) -> NodeParts:
    """A node with GPUs g0, g1, ... of 80 parts."""
    parents = tuple(ParentParts(f"g{i}", 80, count) for i, count in enumerate(available))
    key = names.node_device_name(name, MEM)
    held = dict(holders or {})
    return NodeParts(key, "u", 1, name, MEM, runtime, rules, sm_percent, parents, held, frozenset(refused))


def fleet(*nodes: NodeParts) -> Fleet:
    made = Fleet()
    for each in nodes:
        made.node_changed(each, 0)
    return made


def pod(uid: str, of: PodNeeds, on: str = "a", assigned: Assigned | None = None, **more: Any) -> BoundPod:
    return BoundPod("ns", uid, uid, 1, on, needs=of, parts=assigned or (), **more)


def given(parent: str, count: int, container: str = "c0") -> Assigned:
    return {MEM: {container: {parent: count}}}


def bind(known: Fleet, uid: str, of: PodNeeds, on: str = "a", now: float = 0) -> Assigned:
    found = known.assign(uid, of, on, now)
    assert not isinstance(found, NotFitting), found.reason
    known.promise(uid, of, on, found, now)
    return found


def reason(known: Fleet, of: PodNeeds, on: str = "a", now: float = 0) -> str:
    """Why another pod does not fit on the node; empty if it does."""
    found = known.filter("probe", of, [on], now)
    return (found.failed | found.unresolvable).get(on, "")


DISTINCT = PartRules(Placement.DISTINCT_PARENTS)
ANY = PartRules(Placement.ANY)
TOGETHER = PartRules(Placement.SAME_PARENT, Choice.BINPACK, PodPlacement.TOGETHER)


@pytest.mark.parametrize(
    ("record", "wanted", "expected"),
    [
        pytest.param(node("a", 30, 40), needs(40), "", id="one GPU has as many"),
        pytest.param(
            node("a", 30, 30),
            needs(40),
            "no device has 40 of aliyun.com/gpu-mem free; the most is 30",
            id="enough in all, and on none",
        ),
        pytest.param(
            node("a"), needs(1), "no device has 1 of aliyun.com/gpu-mem free; the most is 0", id="no GPU listed"
        ),
        pytest.param(node("a", 30, 30), needs(30, 30), "", id="two containers on two GPUs"),
        pytest.param(
            node("a", 40, 30),
            needs(40, 40),
            "80 of aliyun.com/gpu-mem needed, and 70 are free",
            id="two containers, and too little in all",
        ),
        pytest.param(
            node("a", 40, 30, 20),
            needs(40, 40),
            "no device has 40 of aliyun.com/gpu-mem free for container c1 beside the others of its pod",
            id="two containers, and one GPU for them",
        ),
        pytest.param(node("a", 30), needs(30, 30, inits=1), "", id="a container reuses what its init container had"),
        pytest.param(node("a", 1, 1, 0, rules=DISTINCT), needs(2), "", id="one of each of two GPUs"),
        pytest.param(
            node("a", 5, 0, 0, rules=DISTINCT),
            needs(2),
            "2 of aliyun.com/gpu-mem needed, each of another device, and 1 devices have one free",
            id="one of each, and there is one GPU",
        ),
        pytest.param(node("a", 30, 30, rules=ANY), needs(60), "", id="any parts will do"),
        pytest.param(
            node("a", 30, 30, rules=ANY),
            needs(61),
            "61 of aliyun.com/gpu-mem needed, and 60 are free",
            id="any parts will do, and there are too few",
        ),
        pytest.param(node("a", rules=None), needs(61), "", id="devices without parts: the scheduler counts them"),
        pytest.param(
            node("a", 80, 60, sm_percent=1, holders={"x": (PodHolding(0, 1), PodHolding(1, 1))}),
            needs(10, sm_percent=50),
            "no device has 10 of aliyun.com/gpu-mem free and 50 percent of its multiprocessors left",
            id="multiprocessors of a pod that is not known",
        ),
    ],
)
def test_fits(record: NodeParts, wanted: PodNeeds, expected: str) -> None:
    known = fleet(record, node("with-parts", 0))
    found = reason(known, wanted)
    assert found.split("; the most")[0] == expected.split("; the most")[0]
    assert expected in found or not expected
    assert isinstance(known.assign("p", wanted, "a", 0), NotFitting) == bool(expected)


@pytest.mark.parametrize(
    ("record", "wanted", "expected"),
    [
        pytest.param(node("b", 80), needs(1), f"the node has no NodeDevice of {MEM}", id="no NodeDevice"),
        pytest.param(node("a", 80, runtime="kubelet"), needs(1), "runtime kubelet", id="the kubelet allocates"),
        pytest.param(
            node("a", 80, sm_percent=1), needs(1, problem="bad annotation"), "bad annotation", id="annotation"
        ),
    ],
)
def test_nodes_where_no_preemption_helps(record: NodeParts, wanted: PodNeeds, expected: str) -> None:
    found = fleet(record).filter("p", wanted, ["a"], 0)
    assert (found.fitting, found.failed) == ([], {})
    assert expected in found.unresolvable["a"]


def test_an_annotation_that_is_none_matters_where_percent_counts_alone() -> None:
    wanted = needs(1, 2, problem="bad annotation")
    known = fleet(node("a", 80, sm_percent=1), node("b", 80))
    found = known.filter("p", wanted, ["a", "b"], 0)
    assert (found.fitting, found.unresolvable) == (["b"], {"a": "bad annotation"})
    assert known.assign("p", wanted, "a", 0) == NotFitting("bad annotation")
    assert known.assign("p", wanted, "b", 0) == {MEM: {"c0": {"g0": 1}, "c1": {"g0": 2}}}


def test_what_a_pod_holds_tentatively_ends_to_the_second() -> None:
    known = fleet(node("a", 80))
    assert known.filter("p", needs(50), ["a"], 0).fitting == ["a"]
    assert known.filter("q", needs(50), ["a"], TENTATIVE_SECONDS - 0.1).fitting == []
    assert known.filter("q", needs(50), ["a"], TENTATIVE_SECONDS).fitting == ["a"]


def test_a_resource_without_parts_beside_one_that_has_them() -> None:
    both = PodNeeds((("rdma/hca", (ContainerNeed("c0", 1),)), (MEM, (ContainerNeed("c0", 50),))))
    known = fleet(node("a", 80))
    assert known.assign("p", both, "a", 0) == given("g0", 50)
    assert known.fits_without(both, "a", frozenset())
    known.promise("p", both, "a", given("g0", 50), 0)
    assert not known.fits_without(both, "a", frozenset())


def test_a_resource_that_has_parts_nowhere_is_the_schedulers() -> None:
    other = PodNeeds((("rdma/hca", (ContainerNeed("c0", 1),)),))
    known = fleet(node("a", 80))
    assert known.filter("p", other, ["a", "b"], 0).fitting == ["a", "b"]
    assert known.assign("p", other, "b", 0) == {}
    assert known.promised_units() == {}


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
    assert known.promise_of("p") is None


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


def test_a_pod_that_is_refused_for_ever_counts_for_nothing() -> None:
    known = fleet(node("a", 80, refused=("p",)))
    known.pod_changed(pod("p", needs(50)), 0)
    assert reason(known, needs(80)) == ""


def test_withdrawn_promises_are_free_at_once_unless_the_api_has_the_pod() -> None:
    known = fleet(node("a", 80))
    bind(known, "p", needs(50))
    known.withdraw("p")
    assert reason(known, needs(80)) == ""
    known.filter("probe", needs(81), ["a"], 0)
    bind(known, "p", needs(50))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.withdraw("p")
    assert reason(known, needs(31))


def test_while_a_bind_is_not_decided_only_its_node_is_offered_and_the_same_parts() -> None:
    known = fleet(node("a", 80, 80), node("b", 80))
    first = bind(known, "p", needs(50))
    found = known.filter("p", needs(50), ["a", "b"], 1)
    assert found.fitting == ["a"]
    assert found.unresolvable == {"b": "it is not known yet whether the API server has bound the pod to node a"}
    assert known.assign("p", needs(50), "a", 1) == first
    assert isinstance(known.assign("p", needs(50), "b", 1), NotFitting)


def test_a_filtered_pod_holds_its_parts_before_its_bind_for_filters_and_not_for_binds() -> None:
    known = fleet(node("a", 80))
    assert known.filter("p", needs(50), ["a"], 0).fitting == ["a"]
    assert known.filter("q", needs(50), ["a"], 1).fitting == []
    assert known.assign("q", needs(50), "a", 1) == given("g0", 50), "a bind checks promises alone"
    assert known.filter("p", needs(50), ["a"], 1).fitting == ["a"], "its own next filter"
    assert known.filter("q", needs(50), ["a"], 1 + TENTATIVE_SECONDS).fitting == ["a"]


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


def test_a_mirror_pod_is_counted_under_its_static_uid() -> None:
    known = fleet(node("a", 80))
    known.pod_changed(pod("p", needs(50), static_uid="hash"), 0)
    known.node_changed(node("a", 30, holders={"hash": (PodHolding(0, 50),)}), 0)
    assert reason(known, needs(30)) == ""


POD: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "p", "uid": "u1", "resourceVersion": "7", "annotations": {}},
    "spec": {
        "nodeName": "a",
        "priority": 5,
        "initContainers": [
            {"name": "i", "resources": {"limits": {MEM: "4"}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"limits": {MEM: 2}}},
        ],
        "containers": [
            {"name": "c", "resources": {"limits": {MEM: "1e1", "cpu": "1", "x.com/y": "500m"}}},
            {"name": "d"},
        ],
    },
}


def made(annotations: Mapping[str, str]) -> BoundPod:
    meta = {**POD["metadata"], "annotations": annotations}
    return bound_pod(msgspec.convert({**POD, "metadata": meta}, BoundPodSchema))


def test_a_pods_record() -> None:
    parts = {MEM: {"i": {"g0": 4}, "s": {"g0": 2}, "c": {"g1": 10}}}
    record = made(
        {names.ASSIGNED_PARTS_ANNOTATION: assigned_parts.encode("u1", parts), names.SM_PERCENT_ANNOTATION: "30"}
    )
    assert record.needs.of == ((MEM, (ContainerNeed("i", 4, True), ContainerNeed("s", 2), ContainerNeed("c", 10))),)
    assert (record.key, record.node, record.priority, record.needs.sm_percent) == (("ns", "p"), "a", 5, 30)
    assert record.assigned == parts


@pytest.mark.parametrize(
    "text",
    [
        "{",
        assigned_parts.encode("u2", given("g0", 10, "c")),
        assigned_parts.encode("u1", given("g0", 10, "c")),
        assigned_parts.encode("u1", {MEM: {"i": {"g0": 4}, "s": {"g0": 2}, "c": {"g1": 11}}}),
    ],
    ids=["not JSON", "of another pod", "not all containers", "another count"],
)
def test_an_assignment_that_does_not_hold_counts_as_none(text: str) -> None:
    assert made({names.ASSIGNED_PARTS_ANNOTATION: text}).assigned == {}


@pytest.mark.parametrize("text", ["0", "101", "x", "1.5", ""])
def test_a_bad_percent_is_a_sentence(text: str) -> None:
    assert "must be a whole number from 1 to 100" in made({names.SM_PERCENT_ANNOTATION: text}).needs.problem


def test_pods_of_one_template_share_their_needs() -> None:
    one, other = (pod_needs(msgspec.convert(POD, BoundPodSchema)) for _ in range(2))
    assert one is other


def test_the_record_of_a_nodedevice() -> None:
    status = {
        "agent": {"runtime": "nri"},
        "parts": {"placement": "SameParent", "choice": "Spread", "containers": "Later", "smPercent": 2},
        "devices": [
            {"id": f"g{i}", "parts": {"total": 80, "healthy": 80, "allocated": 80 - free, "available": free}}
            for i, free in enumerate((60, 80))
        ],
        "allocations": [
            {"podUID": "p", "container": "i", "parts": [{"parent": "g0", "parts": 20, "numbers": "0-19"}]},
            {"podUID": "p", "container": "c", "parts": [{"parent": "g0", "parts": 10, "numbers": "0-9"}]},
            {"podUID": "q", "container": "c", "parts": [{"parent": "gone", "parts": 1, "numbers": "0"}]},
        ],
        "waiting": [{"podUID": "w", "container": "c", "reason": "R", "final": True}],
    }
    created = "2026-01-01T00:00:00Z"
    metadata = {"name": "n", "uid": "u", "resourceVersion": "3", "creationTimestamp": created}
    obj = {"metadata": metadata, "spec": {"nodeName": "a", "resourceName": MEM}}

    def record(status: Mapping[str, Any]) -> NodeParts:
        return node_parts(msgspec.convert({**obj, "status": status}, NodeDeviceSchema))

    known = {"name": "n", "uid": "u", "resource_version": 3, "node": "a", "resource": MEM, "created": created}
    nothing: dict[str, Any] = {
        **{"runtime": "", "rules": None, "sm_percent": None, "parents": (), "holders": {}, "refused": frozenset()},
        **{"has_status": False, "weight": 0},
    }
    # the parts of one pod and its two containers, two GPUs, two pods and one that waits; and the letters of their names
    whole = {
        "runtime": "nri",
        "rules": PartRules(Placement.SAME_PARENT, Choice.SPREAD, PodPlacement.ANY),
        "sm_percent": 2,
        "parents": (ParentParts("g0", 80, 60), ParentParts("g1", 80, 80)),
        "holders": {"p": (PodHolding(0, 20, (20, 10)),), "q": ()},
        "refused": frozenset({"w"}),
        "has_status": True,
        "weight": 8 * _BYTES_OF_ENTRY + 7,
    }
    found = record({"total": 2, **status})
    assert everything(found) == {**known, **whole}
    assert everything(found.without_lists()) == {**known, **nothing, "runtime": "nri"}
    assert everything(record({})) == {**known, **nothing}
    without_parts = {"endpoint": {"state": "Running"}, "devices": status["devices"]}
    assert everything(record(without_parts)) == {**known, **nothing, "has_status": True}


def everything(record: NodeParts) -> dict[str, Any]:
    """Also what does not count when two are compared."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


class TestWithoutAStatus:
    """A NodeDevice that was just made, or made again: whether its devices have parts is not known, so no pod fits yet."""

    UNKNOWN = replace(node("a", rules=None), has_status=False)
    REASON = f"the node's agent has not reported {MEM} yet"

    def test_no_pod_fits(self) -> None:
        assert reason(fleet(self.UNKNOWN), needs(1)) == self.REASON
        known = fleet(self.UNKNOWN, node("b", 80))
        assert known.filter("probe", needs(1), ["a", "b"], 0).fitting == ["b"]
        assert known.assign("probe", needs(1), "a", 0) == NotFitting(self.REASON)

    @pytest.mark.parametrize("reported", [node("a", 80), node("a", rules=None)])
    def test_its_first_status_decides(self, reported: NodeParts) -> None:
        known = fleet(self.UNKNOWN)
        known.node_changed(reported, 1)
        assert reason(known, needs(1)) == ""
        if reported.rules is None:
            # a resource without parts is kube-scheduler's alone again
            assert known.filter("probe", needs(1), ["elsewhere"], 1).fitting == ["elsewhere"]

    def test_the_only_node_with_parts_that_is_made_again_is_no_resource_without_parts(self) -> None:
        known = fleet(node("a", 80))
        known.node_gone(node("a").name, 10)
        assert reason(known, needs(1), now=10.5) == f"the node has no NodeDevice of {MEM}"
        known.node_changed(self.UNKNOWN, 11)
        assert reason(known, needs(1), now=11) == self.REASON
        known.node_changed(node("a", 80), 12)
        assert reason(known, needs(1), now=12) == ""
        # the time of the first one is over, and the count is right
        assert reason(known, needs(81), now=100).startswith("no device has 81")

    def test_a_resource_that_nobody_has_any_more_is_not_ours_for_long(self) -> None:
        known = fleet(node("a", 80))
        known.node_gone(node("a").name, 10)
        assert reason(known, needs(1), now=44) != ""
        assert reason(known, needs(1), now=45) == ""


class TestAPodOfManyContainers:
    """One of 2,500 kept the extender, and so the scheduler, from everybody else for minutes."""

    def test_is_refused_whole_and_for_good(self) -> None:
        known = fleet(*(node(name, *[320] * 8) for name in "abc"))
        many = needs(*[1] * (MOST_CONTAINERS + 1))
        found = known.filter("p", many, ["a", "b", "c"], 0)
        assert found.fitting == []
        assert found.unresolvable.keys() == {"a", "b", "c"}, "no preemption helps"
        expected = f"{MOST_CONTAINERS + 1} containers of the pod ask for {MEM}; {MOST_CONTAINERS} may"
        assert set(found.unresolvable.values()) == {expected}
        assert known.assign("p", many, "a", 0) == NotFitting(expected)
        assert not known.fits_without(many, "a", frozenset())

    def test_is_refused_where_one_node_has_parts(self) -> None:
        many = needs(*[1] * (MOST_CONTAINERS + 1))
        assert fleet(node("a", *[320] * 8)).filter("p", many, ["a"], 0).unresolvable.keys() == {"a"}

    def test_of_a_resource_without_parts_it_is_kube_schedulers_affair(self) -> None:
        many = needs(*[1] * (MOST_CONTAINERS + 1))
        assert fleet(node("a", rules=None)).filter("p", many, ["a"], 0).fitting == ["a"]

    def test_of_a_node_of_many_devices_there_may_be_less(self) -> None:
        known, many = fleet(node("a", *[2] * 100)), needs(*[1] * 100)
        expected = f"{MEM}: 100 containers of the pod ask for parts of 100 devices, and 40 may"
        assert known.filter("p", many, ["a"], 0).failed == {"a": expected}
        assert known.assign("p", many, "a", 0) == NotFitting(expected)
        assert not known.fits_without(many, "a", frozenset()), "nor once others are gone"
        assert isinstance(known.assign("p", needs(*[1] * 40), "a", 0), dict)

    def test_as_many_as_may_are_planned(self) -> None:
        known = fleet(node("a", *[80] * 8))
        assert isinstance(known.assign("p", needs(*[1] * MOST_CONTAINERS), "a", 0), dict)
