"""`why pod` on clusters that are built of records: one cause, two at once, none; and what is said besides causes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubectl_nodedevice.cluster import Allocation, Condition, Container, Cordon, HeldParts, Meta, PodDevice
from kubectl_nodedevice.why import pods
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import CLASSES, NODE_DEVICES, NODES, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass, Event, Slice, SliceDevice
from kubectl_nodedevice.why.reasons.table import PRECEDENCE

from tests.unit.cli.why import clusters
from tests.unit.cli.why.clusters import GPU, OLD, asking, base, bound, each_found, each_node, of_node_a, pod_with
from tests.unit.cli.why.situations import BOUND, UNBOUND, Change

_UNREAD: Final = (Unread("configmaps", "no"),)


def codes(facts: Facts) -> list[str]:
    # of two resources or claims for the same reason, each has one
    return list(dict.fromkeys(each.code for each in pods.explain(facts).findings))


def in_order(*changes: Change) -> list[str]:
    return sorted({each.code for each in changes}, key=lambda code: PRECEDENCE[code])


@pytest.mark.parametrize("made", [clusters.base, clusters.bound])
def test_where_nothing_is_wrong_nothing_is_named(made: object) -> None:
    assert callable(made)
    explained = pods.explain(made())
    assert (explained.findings, explained.is_stopped) == ((), True)


def _several(changes: tuple[Change, ...]) -> st.SearchStrategy[list[Change]]:
    drawn = st.lists(st.sampled_from(changes), min_size=2, max_size=3, unique_by=lambda change: change.id)
    return drawn.filter(lambda found: all(one.goes_with(other) for one, other in combinations(found, 2)))


_MADE = ((clusters.base, UNBOUND), (clusters.bound, BOUND))
_PAIRS = st.one_of(*(st.tuples(st.just(made), _several(changes)) for made, changes in _MADE))


@given(_PAIRS)
def test_all_that_was_done_is_named_and_nothing_else(drawn: tuple[object, list[Change]]) -> None:
    made, changes = drawn
    assert callable(made)
    facts = made()
    for change in changes:
        facts = change.do(facts)
    assert codes(facts) == in_order(*changes)


# -- pods on their nodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "states", "runs"),
    [
        ("Running", ["running", "running"], True),
        ("Running", ["running", "waiting"], False),
        ("Running", ["terminated", "running"], False),
        ("Pending", ["running", "running"], False),
    ],
)
def test_a_pod_runs_where_each_of_its_containers_does(phase: str, states: list[str], runs: bool) -> None:
    """But for those that come before the others, and end."""
    first = Container("first", is_init=True, state="terminated")
    containers = (first, *(Container(f"c{at}", state=state) for at, state in enumerate(states)))
    found = pods.explain(replace(pod_with(bound(), phase=phase, containers=containers), unread=_UNREAD))
    state = f"is bound to node-a and requests claim train-port. It has gpu-0, gpu-1 ({GPU})."
    assert (found.state, found.findings) == (f"{state} It runs." if runs else state, ())
    assert (found.is_stopped, found.unread) == (not runs, _UNREAD)


def saying(facts: Facts, reasons: Sequence[str]) -> Facts:
    """Events of the pod, in their order: each says its number."""
    events = [Event("Pod", "train", "uid-1", each, f"words {at}", f"at {at}") for at, each in enumerate(reasons)]
    return replace(facts, events=tuple(events))


# -- schedulers ---------------------------------------------------------------------------------------------------------------


def unanswered(created: str = OLD, scheduler: str = "mine") -> Facts:
    """No scheduler has said anything of the pod."""
    return pod_with(base(), conditions={}, scheduler=scheduler, meta=Meta("train", "team", "uid-1", created=created))


_PODS: Final = "pods --all-namespaces --output wide --selector"


@pytest.mark.parametrize(
    ("scheduler", "name", "options"),
    [
        ("", "default-scheduler", f"{_PODS} component=kube-scheduler"),
        ("default-scheduler", "default-scheduler", f"{_PODS} component=kube-scheduler"),
        ("nodedevice-scheduler", "nodedevice-scheduler", f"{_PODS} app.kubernetes.io/component=scheduler"),
        # of another one only its Events are known
        ("volcano", "volcano", "events --all-namespaces --field-selector source=volcano"),
    ],
)
def test_a_scheduler_that_does_not_answer(scheduler: str, name: str, options: str) -> None:
    [found] = pods.explain(unanswered(scheduler=scheduler)).findings
    fields = {"scheduler": name, "since": "4 min", "scheduler_options": options}
    assert found.obstacles == (Obstacle("NoScheduler", fields=fields),)


@pytest.mark.parametrize(
    ("created", "is_late"), [("2026-01-02T03:03:59Z", True), ("2026-01-02T03:04:00Z", False), ("", False)]
)
def test_a_scheduler_has_seconds_to_answer(created: str, is_late: bool) -> None:
    assert codes(unanswered(created)) == ["NoScheduler"] * is_late


# -- names of resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NODES, CLASSES])
def test_what_may_not_be_read_may_have_the_name(kind: str) -> None:
    facts = asking(base(), "example.com/gpus", 1)
    assert codes(facts) == ["NothingServes"]
    assert codes(replace(facts, unread=(Unread(kind, "no"),))) == []


# -- nodes --------------------------------------------------------------------------------------------------------------------

_COULD: Final = "No obstacle is known on node-a, node-b."


def untried() -> Facts:
    """No scheduler has refused the pod."""
    return pod_with(base(), conditions={})


def _with_cpu(facts: Facts, asked: str) -> Facts:
    facts = each_node(facts, lambda node: replace(node, allocatable={**node.allocatable, "cpu": "3900m"}))
    return asking(facts, "cpu", asked)


@pytest.mark.parametrize(
    ("facts", "could"),
    [
        (untried(), True),
        # of a gated pod it says only that it is
        (pod_with(base(), gates=("example.com/queue",)), True),
        (_with_cpu(untried(), "3900m"), True),
        # the scheduler has refused it, for whatever reason
        (base(), False),
        (saying(untried(), ["FailedScheduling"]), False),
        # what only a scheduler weighs
        (pod_with(untried(), is_constrained=True), False),
        (_with_cpu(untried(), "4"), False),
        # no node would do
        (replace(untried(), namespace_deleted=OLD), False),
        (asking(untried(), "example.com/gpus", 1), False),
    ],
)
def test_a_node_is_named_only_where_it_could_take_the_pod(facts: Facts, could: bool) -> None:
    assert (_COULD in pods.explain(facts).notes) == could


def test_labels_of_nodes_that_may_not_be_read_are_not_guessed() -> None:
    """Either node may be in the zone; one of them has the name besides."""
    by_label = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [by_label, by_name]}}
    facts = pod_with(untried(), affinity={"nodeAffinity": terms})
    facts = replace(facts, nodes=(), unread=(Unread(NODES, "no"),))
    cordoned = of_node_a(facts, lambda found: replace(found, cordons=(Cordon("*"),), available=0))
    assert codes(cordoned) == []
    assert pods.explain(cordoned).notes == ("No obstacle is known on node-b.",)
    both = each_found(cordoned, lambda found: replace(found, cordons=(Cordon("*"),), available=0))
    assert [each.nodes for each in pods.explain(both).findings] == [("node-a", "node-b")]


@pytest.mark.parametrize("name", ["SchedulingGated", "ClaimMissing", "ClaimNotMade"])
def test_what_a_scheduler_waits_for_itself(name: str) -> None:
    [change] = [each for each in UNBOUND if each.id == name]
    assert codes(change.do(unanswered())) == [change.code]


_LACKS: Final = "1 further node lacks what it requests."


def test_without_the_devices_of_nodes_none_is_said_to_take_it() -> None:
    facts = replace(base(), node_devices=(), unread=(Unread(NODE_DEVICES, "no"),))
    assert pods.explain(facts).notes == (_LACKS,)


def test_a_resource_of_whose_classes_no_driver_offers_a_device() -> None:
    first = DeviceClass("disk.example.com", "example.com/disk", "disk.example.com")
    second = replace(first, name="other.example.com", driver="other.example.com")
    facts = asking(base(), "example.com/disk", 1)
    facts = replace(facts, classes=(*facts.classes, first, second))
    [found] = pods.explain(facts).findings
    fields = {"device_class": first.name, "hint": f", whose driver is {first.driver}.", "claim": ""}
    assert found.obstacles == (Obstacle("NothingOffered", fields=fields),)
    # of one class that has devices somewhere it is for the scheduler to say
    elsewhere = Slice(second.driver, "p", 1, "node-z", (SliceDevice("d"),))
    assert codes(replace(facts, slices=(*facts.slices, elsewhere))) == []


@pytest.mark.parametrize(
    ("condition", "reasons", "words", "at"),
    [
        ("0/3 nodes", [], "0/3 nodes", "since"),
        (None, ["FailedScheduling", "FailedScheduling", "FailedMount"], "words 1", "at 1"),
        # an Event may be older than the condition, or newer: it is not the one that holds
        ("0/3 nodes", ["FailedScheduling"], "0/3 nodes", "since"),
    ],
)
def test_the_last_words_of_the_scheduler(condition: str | None, reasons: list[str], words: str, at: str) -> None:
    scheduled = Condition("PodScheduled", "False", "Unschedulable", condition or "", "since")
    conditions = {} if condition is None else {"PodScheduled": scheduled}
    found = pods.explain(saying(replace(pod_with(base(), conditions=conditions), unread=_UNREAD), reasons))
    assert (found.words, found.words_at, found.words_by, found.unread) == (words, at, "scheduler", _UNREAD)


def test_what_a_pod_has() -> None:
    def has(facts: Facts) -> str:
        return pods.explain(facts).state.partition(". It has ")[2]

    held = Allocation("team", "train", "uid-1", "main", device_ids=("gpu-3",), parts=(HeldParts("gpu-0", 2),))
    more = replace(held, container="other", device_ids=(), parts=(HeldParts("gpu-1", 1),))
    facts = of_node_a(bound(), lambda found: replace(found, allocations=(held, more)))
    by_agent = f"gpu-3, 2 of gpu-0 ({GPU}); 1 of gpu-1 ({GPU})."
    assert has(facts) == by_agent
    own = PodDevice(Meta("train", "team"), "node-a", "uid-1", devices="gpu-3,gpu-0,gpu-1")
    assert has(replace(facts, pod_device=own)) == "gpu-3,gpu-0,gpu-1."
    # of a pod that had the same name
    assert has(replace(facts, pod_device=replace(own, pod_uid="of before"))) == by_agent
    assert has(of_node_a(facts, lambda found: replace(found, allocations=()))) == ""


@pytest.mark.parametrize(
    ("reasons", "last"),
    [
        ([], None),
        (["Pulled", "FailedScheduling"], None),
        (["FailedMount", "Pulled"], 0),
        (["FailedMount", "FailedSync", "BackOff", "FailedScheduling"], 2),
    ],
)
def test_the_last_words_of_the_kubelet(reasons: list[str], last: int | None) -> None:
    found = pods.explain(saying(replace(bound(), unread=_UNREAD), reasons))
    expected = ("", "") if last is None else (f"words {last}", f"at {last}")
    assert (found.words, found.words_at, found.words_by, found.unread) == (*expected, "kubelet", _UNREAD)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("example.com/gpus", f"; did you mean {GPU}?"),
        # what an agent shows, though no Node does
        ("tpus.example.com/tpus", "; did you mean tpus.example.com/tpu?"),
        # not what a driver's pools are called
        ("zzz/device", "."),
    ],
)
def test_which_names_may_be_meant(asked: str, hint: str) -> None:
    facts = asking(base(), asked, 1)
    facts = each_node(facts, lambda node: replace(node, allocatable={**node.allocatable, "cpu": "8"}))
    ours = replace(clusters.gpus("node-a"), resource="tpus.example.com/tpu")
    pool = replace(ours, resource="zzz/devices", agent=replace(ours.agent, served_by="dra"))
    also = DeviceClass("nics", "nics.example.com/nic", clusters.DRIVER)
    found = pods.explain(replace(facts, node_devices=(*facts.node_devices, ours, pool), classes=(*facts.classes, also)))
    assert [each.fields["hint"] for each in found.findings] == [hint]
