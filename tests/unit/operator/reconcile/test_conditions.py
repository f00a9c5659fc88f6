"""What the conditions report, what Ready names first, and that nothing is written twice."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import OPERATOR_CONDITIONS, Reason
from nodedevice_operator.capacity.decide import ResourceStatus
from nodedevice_operator.leases.agent_liveness import ALIVE, MISSING, AgentState, expired
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.reconcile import conditions
from nodedevice_operator.reconcile.conditions import DesiredCondition

from tests.fakes.operator.operator_model import OperatorModel, node_device, settle

GOOD = ResourceStatus(True, Reason.ADVERTISED)
TAKEN = ResourceStatus(False, Reason.FOREIGN_OWNER, "kubelet", Reason.FOREIGN_OWNER)
NODELESS = ResourceStatus(False, Reason.NODE_MISSING)


def row(name: str, *ready: str, verdict: ResourceStatus = GOOD, agent: AgentState = ALIVE, **reported: Any) -> Any:
    """ready: status and reason that follow where the agent reports these conditions of its own; None: not there."""
    stored = {kind: StoredCondition(each[0], each[1], "", "then", 1) for kind, each in reported.items() if each}
    others = {kind: each for kind, each in node_device().conditions.items() if kind not in reported}
    return pytest.param(node_device(conditions={**others, **stored}), verdict, agent, ready, id=name)


def of_cordons(cordoned: int, total: int, *ready: str, verdict: ResourceStatus = GOOD) -> Any:
    record = node_device(total=total, cordoned=cordoned)
    return pytest.param(record, verdict, ALIVE, ready, id=f"{cordoned} of {total} cordoned, {ready[1]}")


STOPPED = ("False", "EndpointStopped")
NO_NRI = ("False", "NriDisabled")


@pytest.mark.parametrize(
    ("record", "verdict", "agent", "ready"),
    [
        row("some broken", "True", "SomeDevicesUnhealthy", Healthy=("False", "SomeDevicesUnhealthy")),
        row("a list in part", "True", "DevicesRefused", Registered=("True", "DevicesRefused")),
        row("of which none is given out", "True", "PoolIncomplete", Registered=("True", "PoolIncomplete")),
        row(
            *("broken devices before what else is to be repaired", "True", "SomeDevicesUnhealthy"),
            Registered=("True", "CheckpointUnreadable"),
            Healthy=("False", "SomeDevicesUnhealthy"),
        ),
        row("cannot inject before blind", *NO_NRI, Injectable=NO_NRI, WatchesCurrent=("False", "WatchStale")),
        row("an agent of before the condition", "True", "Ready", WatchesCurrent=None),
        row("a dead agent first", "False", "LeaseExpired", verdict=TAKEN, agent=expired(60), Registered=STOPPED),
        row("a Node that is not there", "False", "NodeMissing", verdict=NODELESS, agent=MISSING, Registered=None),
        row("the agent's own before ours", *STOPPED, verdict=TAKEN, Registered=STOPPED),
        of_cordons(7, 8, "True", "Ready"),
        of_cordons(8, 8, "False", "AllCordoned"),
        of_cordons(1, 1, "False", "AllCordoned"),
        # what else is wrong comes first
        of_cordons(8, 8, "False", "ForeignOwner", verdict=TAKEN),
        of_cordons(0, 0, "True", "Ready"),
    ],
)
def test_ready(record: NodeDeviceRecord, verdict: ResourceStatus, agent: AgentState, ready: tuple[str, str]) -> None:
    answer = conditions.desired(record, verdict, agent)["Ready"]
    assert (answer.status, answer.reason) == ready


def test_a_resource_that_is_cordoned_whole_keeps_its_held_devices_on_the_node() -> None:
    model = OperatorModel()
    whole = node_device(total=2, healthy=2, cordoned=2, allocated=1)
    settle(model, [whole])
    assert (model.shown(), model.condition("Ready").reason) == ((1, 1), "AllCordoned")
    settle(model, [replace(whole, cordoned=0, available=1)])
    assert (model.shown(), model.condition("Ready").reason) == ((2, 2), "Ready")


def stored(record: NodeDeviceRecord, wanted: Mapping[str, DesiredCondition]) -> NodeDeviceRecord:
    """As it is after the conditions were written at ten."""
    return replace(record, conditions={**record.conditions, **conditions.changed(record, wanted, "10:00")})


def test_all_four_are_written_at_once_and_then_only_with_a_change() -> None:
    record = node_device()
    wanted = conditions.desired(record, GOOD, ALIVE)
    assert tuple(conditions.changed(record, wanted, "10:00")) == OPERATOR_CONDITIONS
    record = stored(record, wanted)
    assert conditions.changed(record, wanted, "10:01") == {}
    # only a status that changes gets a new time
    values = conditions.changed(record, conditions.desired(record, TAKEN, ALIVE), "11:00")
    since = {kind: value.since for kind, value in values.items()}
    assert since == {"Advertised": "11:00", "Conflict": "11:00", "AgentReady": "10:00", "Ready": "11:00"}
    # a new generation is observed
    record = replace(record, generation=2)
    values = conditions.changed(record, conditions.desired(record, GOOD, ALIVE), "11:00")
    assert {(value.observed_generation, value.since) for value in values.values()} == {(2, "10:00")}


def _advertised(record: NodeDeviceRecord, lacks_policies: bool | None) -> str:
    return conditions.desired(record, GOOD, ALIVE, lacks_policies=lacks_policies)["Advertised"].message


def test_an_api_server_that_cannot_hold_pods_back_is_reported_to_who_has_only_kubectl() -> None:
    by_nri = replace(node_device(), delivery="nri")
    assert "has no MutatingAdmissionPolicy v1" in _advertised(by_nri, True)
    assert "MutatingAdmissionPolicy" not in _advertised(by_nri, False)
    assert "MutatingAdmissionPolicy" not in _advertised(replace(by_nri, delivery="none"), True)
    withdrawn = conditions.desired(by_nri, ResourceStatus(True, Reason.FREE_WITHDRAWN), ALIVE, lacks_policies=True)
    assert "MutatingAdmissionPolicy" not in withdrawn["Advertised"].message


@pytest.mark.parametrize("lacked", [True, False])
def test_while_nobody_knows_it_stays_as_it_was_reported(lacked: bool) -> None:
    record = replace(node_device(), delivery="nri")
    before = conditions.desired(record, GOOD, ALIVE, lacks_policies=lacked)
    record = stored(record, before)
    unknown = conditions.desired(record, GOOD, ALIVE, lacks_policies=None)
    assert conditions.changed(record, unknown, "10:01") == {}
