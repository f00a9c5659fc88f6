"""What is written into a Node's status, and what is not."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.extended_resources import count
from nodedevice_api.names import SERVED_BY_DRA, Condition, Reason
from nodedevice_operator.capacity.decide import decide
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import ExtendedResource, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition

from tests.fakes.operator.node_status import ALLOCATABLE, CAPACITY
from tests.fakes.operator.operator_model import (
    GPU,
    NIC,
    OperatorModel,
    advertising,
    node_device,
    not_configured,
    settle,
)


@pytest.mark.kubelet("behaviour 19", "scenario 96")
@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({"available": 3, "allocated": 1}, 4, id="allocated and available count"),
        pytest.param({"available": 3, "releasing": 1}, 3, id="releasing does not"),
        pytest.param({"available": 1, "releasing": 3, "reserved": 2}, 3, id="but for what bound pods wait for"),
        pytest.param({"healthy": 5, "available": 2}, 2, id="healthy alone does not"),
        pytest.param({}, 0, id="a resource without usable devices is shown as 0"),
        pytest.param({"endpoint": "Stopped", "available": 2}, 2, id="a stopped endpoint keeps its devices"),
        pytest.param({"endpoint": "Gone", "allocated": 1}, 1, id="a gone endpoint keeps what is held"),
        pytest.param({"endpoint": "Gone", "releasing": 2, "reserved": 2}, 2, id="and what bound pods wait for"),
        pytest.param({"endpoint": "Gone"}, None, id="a gone endpoint with nothing held leaves the Node"),
        pytest.param({"endpoint": None, "available": 1}, 1, id="an agent without an endpoint"),
        pytest.param({"has_status": False}, None, id="no status yet"),
        pytest.param({"owner_uid": "uid-of-the-node-before", "available": 4}, None, id="of a Node that is gone"),
        pytest.param({"owner_uid": None, "available": 4}, None, id="of no Node"),
    ],
)
def test_number_shown(fields: dict[str, Any], shown: int | None) -> None:
    model = OperatorModel()
    settle(model, [node_device(**fields)])
    assert model.shown() == (shown, shown)


def test_all_names_are_in_one_apply_and_none_is_sent_twice() -> None:
    model = OperatorModel()
    settle(model, [node_device(GPU, available=2), node_device(NIC, available=1)])
    model.reconcile()
    assert [apply.numbers for apply in model.applies] == [{GPU: 2, NIC: 1}]
    settle(model, [node_device(GPU, available=3)])
    assert model.applies[1].numbers == {GPU: 3, NIC: 1}
    assert not any(apply.is_forced for apply in model.applies)
    assert model.reported() == []


def test_a_second_object_for_the_same_resource_is_ignored() -> None:
    model = OperatorModel()
    settle(model, [node_device(available=2), replace(node_device(available=9), name="made-by-hand")])
    assert model.node.seen(GPU).capacity == 2


GONE = node_device(endpoint="Gone")


@pytest.mark.kubelet("behaviour 24")
@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (GONE, Reason.ENDPOINT_GONE),
        (not_configured(), Reason.NOT_CONFIGURED),
        (not_configured(reason=Reason.PLACE_TAKEN), Reason.PLACE_TAKEN),
    ],
    ids=["its plugin is gone", "not configured", "another plugin has its place"],
)
def test_a_resource_that_ends_leaves_once_no_pod_holds_it_and_comes_back(ended: NodeDeviceRecord, reason: str) -> None:
    model = advertising(4)
    settle(model, [replace(ended, allocated=2)])
    assert model.shown() == (2, 2)
    settle(model, [ended])
    assert (model.node.seen(GPU).is_present, model.condition(Condition.ADVERTISED).reason) == (False, reason)
    settle(model, [node_device(available=4)])
    assert (model.node.seen(GPU).capacity, model.reported(), model.repairs) == (4, [], [])


def test_a_copy_that_a_kubelet_keeps_of_a_gone_resource_is_no_conflict() -> None:
    model = advertising(4)
    settle(model, [GONE])
    model.node.update("kubelet", GPU, 4, (ALLOCATABLE,))
    settle(model, [node_device(available=2)])
    assert (model.shown(), model.reported()) == ((2, 2), [])


def injecting(status: str, **fields: Any) -> NodeDeviceRecord:
    """One whose agent reports that of whether devices can reach containers."""
    injectable = {Condition.INJECTABLE: StoredCondition(status, "Why", "", "then", 1)}
    return node_device(conditions={**node_device().conditions, **injectable}, **fields)


@pytest.mark.parametrize(
    ("status", "fields", "shown"),
    [
        pytest.param("True", {"available": 3, "allocated": 1}, 4, id="injectable"),
        pytest.param("Unknown", {"available": 3, "allocated": 1}, 4, id="no agent should inject"),
        pytest.param("False", {"available": 3, "allocated": 1}, 1, id="held ones stay"),
        pytest.param("False", {"available": 1, "allocated": 1, "reserved": 2}, 3, id="and what bound pods wait for"),
        pytest.param("False", {"available": 3}, None, id="nothing held"),
        pytest.param("False", {"available": 3, "releasing": 1}, None, id="releasing is not held"),
    ],
)
@pytest.mark.parametrize("was_advertised", [True, False])
def test_number_shown_where_devices_may_not_reach_containers(
    status: str, fields: dict[str, int], shown: int | None, was_advertised: bool
) -> None:
    model = OperatorModel()
    if was_advertised:
        settle(model, [injecting("True", available=4)])
    settle(model, [injecting(status, **fields)])
    assert model.shown() == (shown, shown)


def test_that_devices_cannot_reach_containers_is_reported_and_all_comes_back() -> None:
    model = OperatorModel()
    settle(model, [injecting("True", available=4)])
    for fields, status in (({"available": 3, "allocated": 1}, "True"), ({"available": 4}, "False")):
        settle(model, [injecting("False", **fields)])
        reported = model.condition(Condition.ADVERTISED)
        assert (reported.status, reported.reason) == (status, Reason.NOT_INJECTABLE)
    settle(model, [injecting("True", available=4)])
    assert model.node.seen(GPU).capacity == 4
    assert model.condition(Condition.ADVERTISED).reason == Reason.ADVERTISED
    assert (model.reported(), model.repairs) == ([], [])


@pytest.mark.parametrize("change", [{"has_status": False}, {"owner_uid": None}])
def test_capacity_is_held_while_its_nodedevice_reports_nothing_of_this_node(change: dict[str, Any]) -> None:
    model = advertising(4)
    settle(model, [node_device(**change), node_device(NIC, available=1)])
    assert (model.node.seen(GPU).capacity, model.node.seen(NIC).capacity) == (4, 1)


@pytest.mark.parametrize(
    ("found", "maps", "cause", "before"),
    [
        pytest.param(0, (CAPACITY, ALLOCATABLE), "zeroed", "kubelet set it to 0", id="zeroed"),
        pytest.param(7, (CAPACITY,), "changed", "kubelet set it to 7", id="capacity changed"),
        pytest.param(count("1e5000"), (CAPACITY,), "changed", f"kubelet set it to {count('1e5000')}", id="any number"),
        pytest.param(3, (ALLOCATABLE,), "changed", "kubelet set it to 3", id="allocatable changed"),
        pytest.param(0, (ALLOCATABLE,), "zeroed", "kubelet set it to 0", id="allocatable zeroed"),
        pytest.param(None, (CAPACITY, ALLOCATABLE), "removed", "an unknown writer removed it", id="removed"),
        pytest.param(None, (CAPACITY,), "removed", "an unknown writer removed it", id="capacity removed"),
    ],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_drift_is_repaired_and_reported_once(
    found: int | None, maps: tuple[str, ...], cause: str, before: str, is_restarted: bool
) -> None:
    model = advertising(4)
    if is_restarted:
        model.restart()
    model.node.update("kubelet", GPU, found, maps)
    model.reconcile()
    model.reconcile()
    assert (model.shown(), model.node.seen(GPU).is_capacity_ours, len(model.applies)) == ((4, 4), True, 1)
    assert model.repairs == [cause]
    message = f"{GPU}: {before}, restored to 4"
    assert [(event.about.kind, event.message) for event in model.events] == [("Node", message), ("NodeDevice", message)]
    assert model.condition(Condition.ADVERTISED).status == "True"


def test_a_kubelet_that_copies_capacity_into_allocatable_is_no_drift() -> None:
    model = advertising(4)
    model.node.update("kubelet", GPU, None, (ALLOCATABLE,))
    model.node.update("kubelet", GPU, 4, (ALLOCATABLE,))
    model.reconcile()
    assert (model.applies, model.repairs) == ([], [])
    settle(model, [node_device(available=3)])
    assert [(apply.numbers, apply.is_forced) for apply in model.applies] == [({GPU: 3}, True)]
    assert model.repairs == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_reset", [False, True])
def test_lost_ownership_of_a_right_number_is_taken_back_without_a_word(is_reset: bool, is_restarted: bool) -> None:
    model = advertising(4)
    if is_reset:
        model.node.forget_owners()
    else:
        model.node.update("somebody", GPU, 3)
        model.node.update("somebody", GPU, 4)
    if is_restarted:
        model.restart()
    model.reconcile()
    seen = model.node.seen(GPU)
    assert (seen.is_capacity_ours, seen.is_allocatable_ours) == (True, True)
    assert [(apply.numbers, apply.is_forced) for apply in model.applies] == [({GPU: 4}, False)]
    assert (model.repairs, model.reported()) == ([], [])


def test_a_new_name_is_never_forced_along_with_a_repair() -> None:
    model = advertising(4)
    model.node.update("kubelet", GPU, 0)
    settle(model, [node_device(GPU, available=4), node_device(NIC, available=1)])
    applied = [(apply.numbers, apply.is_forced) for apply in model.applies]
    assert applied == [({GPU: 4}, True), ({GPU: 4, NIC: 1}, False)]


@pytest.mark.parametrize("value", [0, 4, 9])
@pytest.mark.parametrize("maps", [(CAPACITY, ALLOCATABLE), (CAPACITY,), (ALLOCATABLE,)])
def test_a_name_that_was_set_before_is_not_changed(value: int, maps: tuple[str, ...]) -> None:
    model = OperatorModel()
    model.node.update("kubelet", GPU, value, maps)
    settle(model, [node_device(GPU, available=4), node_device(NIC, available=1)])
    model.reconcile()
    assert [(apply.numbers, apply.is_forced) for apply in model.applies] == [({NIC: 1}, False)]
    assert OURS not in model.node.seen(GPU).capacity_owners | model.node.seen(GPU).allocatable_owners
    assert model.reported() == ["CapacityConflict"]
    assert model.condition(Condition.CONFLICT).reason == Reason.FOREIGN_OWNER
    assert model.condition(Condition.ADVERTISED).reason == Reason.FOREIGN_OWNER
    assert "kubelet" in model.condition(Condition.CONFLICT).message


def test_a_value_that_nobody_is_named_for_counts_as_somebodys() -> None:
    model = OperatorModel()
    model.node.update("", GPU, 4)
    model.node.forget_owners()
    settle(model, [node_device(available=4)])
    assert model.applies == []
    assert model.condition(Condition.CONFLICT).message.startswith("unknown ")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_conflict_ends_when_the_name_is_free(is_restarted: bool) -> None:
    model = OperatorModel()
    model.node.update("kubelet", GPU, 4)
    settle(model, [node_device(available=2)])
    if is_restarted:
        model.restart()
        model.reconcile()
    assert (model.reported(), model.applies) == (["CapacityConflict"], [])
    model.node.update("kubelet", GPU, None)
    model.reconcile()
    model.reconcile()
    assert model.node.seen(GPU).capacity == 2
    assert model.reported() == ["CapacityConflict", "CapacityConflictEnded"]
    assert (model.condition(Condition.CONFLICT).status, model.repairs) == ("False", [])


def ours(number: int) -> ExtendedResource:
    return ExtendedResource(number, number, frozenset({OURS}), frozenset({OURS}))


def test_a_new_name_waits_and_others_do_not() -> None:
    node = NodeRecord("node-a", "uid-1", 1, {})
    records = [node_device(GPU, available=2), node_device(NIC, available=1)]
    decision = decide(node, records, None, 1000.0, unguarded={GPU: "PolicyPending"})
    assert decision.apply is not None
    assert (decision.apply.numbers, decision.statuses[GPU].reason) == ({NIC: 1}, "PolicyPending")
    assert not decision.statuses[GPU].is_advertised
    with_nic = NodeRecord("node-a", "uid-1", 2, {NIC: ours(1)})
    later = decide(with_nic, records, decision.history, 1010.0)
    assert later.apply is not None
    assert (later.apply.numbers, later.repairs) == ({GPU: 2, NIC: 1}, ())


def test_what_is_on_the_node_stays_and_follows_its_devices() -> None:
    node = NodeRecord("node-a", "uid-1", 1, {GPU: ours(2)})
    decision = decide(node, [node_device(GPU, available=1)], None, 1000.0, unguarded={GPU: "PolicyPending"})
    assert decision.apply is not None
    assert (decision.apply.numbers, decision.statuses[GPU].is_advertised) == ({GPU: 1}, True)


@pytest.mark.parametrize(
    ("writer", "fields", "reason"),
    [
        pytest.param("", {}, Reason.ADVERTISED, id="ours"),
        pytest.param("kubelet", {}, Reason.FOREIGN_OWNER, id="another's"),
        pytest.param("kubelet", {"delivery": "kubelet"}, Reason.BY_KUBELET, id="the kubelet's"),
        pytest.param("", {"served_by": SERVED_BY_DRA}, Reason.SERVED_BY_DRA, id="a DRA driver's"),
    ],
)
def test_nothing_is_so_for_longer_than_its_node(writer: str, fields: dict[str, Any], reason: str) -> None:
    model = OperatorModel()
    model.node.made = "2026-01-02T03:04:05Z"
    if writer:
        model.node.update(writer, GPU, 9)
    status = settle(model, [node_device(available=4, **fields)]).statuses[GPU]
    assert (status.reason, status.not_before) == (reason, model.node.made)
