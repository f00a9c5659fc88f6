"""What a silent agent does to capacity, conditions and Events, and what its return does."""

from dataclasses import replace

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.leases.agent_liveness import ALIVE, MISSING, AgentState, expired

from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, node_device, settle

SILENT = expired(60)
WITHDRAWN = replace(SILENT, is_withdrawn=True)


@pytest.fixture
def model() -> OperatorModel:
    """A Node with four GPUs, one of them held, and a free NIC; its agent alive."""
    made = OperatorModel()
    settle(made, [node_device(available=3, allocated=1), node_device(NIC, available=1)])
    made.applies.clear()
    return made


def become(model: OperatorModel, agent: AgentState) -> OperatorModel:
    model.agent = agent
    model.reconcile()
    return model


def shown(model: OperatorModel) -> tuple[int | None, int | None]:
    return model.node.seen(GPU).capacity, model.node.seen(NIC).capacity


def test_silence_alone_is_reported_and_changes_no_number(model: OperatorModel) -> None:
    become(model, SILENT)
    assert (shown(model), model.applies) == ((4, 1), [])
    assert model.reported() == [Reason.LEASE_EXPIRED] * 2
    for kind, status in ((Condition.AGENT_READY, "Unknown"), (Condition.READY, "False")):
        assert (model.condition(kind).status, model.condition(kind).reason) == (status, Reason.LEASE_EXPIRED)
    assert model.condition(Condition.ADVERTISED).reason == Reason.ADVERTISED


def test_after_the_grace_only_what_is_held_stays_and_all_comes_back_at_once(model: OperatorModel) -> None:
    assert shown(become(become(model, SILENT), WITHDRAWN)) == (1, 0)
    advertised = model.condition(Condition.ADVERTISED)
    assert (advertised.status, advertised.reason) == ("True", Reason.FREE_WITHDRAWN)
    model.reconcile()
    assert len(model.applies) == 1
    become(model, ALIVE)
    assert shown(model) == (4, 1)
    assert len(model.applies) == 2
    assert model.reported() == [Reason.LEASE_EXPIRED] * 2 + [Reason.FREE_WITHDRAWN] * 2 + [Reason.LEASE_RENEWED] * 2
    withdrawn = "3 free devices are no longer offered, devices in use stay (1); all are offered again when"
    assert f"{withdrawn} the agent is back" in model.events[2].message
    assert "offered again" in model.events[-1].message
    assert model.condition(Condition.ADVERTISED).reason == Reason.ADVERTISED


def test_what_bound_pods_wait_for_stays_with_what_is_held(model: OperatorModel) -> None:
    settle(model, [node_device(allocated=1, releasing=2, reserved=2, available=1)])
    assert shown(become(model, WITHDRAWN)) == (3, 0)


def test_a_restart_does_not_take_the_withdrawal_back(model: OperatorModel) -> None:
    become(become(model, SILENT), WITHDRAWN)
    model.restart()
    model.applies.clear()
    reported = model.reported()
    # the grace counts again, and whether it was an outage is not known yet
    for agent in (SILENT, expired(60, together=True), MISSING):
        assert shown(become(model, agent)) == (1, 0)
    assert (model.applies, model.reported()) == ([], reported)
    assert shown(become(model, ALIVE)) == (4, 1)


def test_a_foreign_change_is_put_back_to_what_is_held(model: OperatorModel) -> None:
    become(model, WITHDRAWN)
    model.node.update("kubelet", GPU, 0)
    model.reconcile()
    assert shown(model) == (1, 0)
    assert model.repairs == ["zeroed"]


def test_many_together_are_reported_of_elsewhere(model: OperatorModel) -> None:
    become(model, expired(60, together=True))
    assert shown(model) == (4, 1)
    assert model.reported() == []
    ready = model.condition(Condition.READY)
    assert (ready.status, ready.reason) == ("False", Reason.LEASES_EXPIRED_TOGETHER)
    assert become(model, ALIVE).reported() == []


def test_an_agent_that_just_came_is_no_return() -> None:
    model = OperatorModel(agent=MISSING)
    settle(model, [node_device(available=1)])
    assert become(model, ALIVE).reported() == []


def test_a_lease_that_is_gone_is_reported_and_so_is_its_return(model: OperatorModel) -> None:
    become(model, expired(60, is_gone=True))
    assert "which is gone" in model.condition(Condition.AGENT_READY).message
    assert become(model, ALIVE).reported() == [Reason.LEASE_EXPIRED] * 2 + [Reason.LEASE_RENEWED] * 2


def test_a_new_node_of_that_name_starts_with_all_it_has(model: OperatorModel) -> None:
    become(model, WITHDRAWN)
    model.node.remake("uid-2")
    model.agent = SILENT
    settle(model, [node_device(available=3, owner_uid="uid-2"), node_device(NIC, available=1, owner_uid="uid-2")])
    # the conditions of the objects before are theirs: these are new objects, with none
    for name, record in model.node_devices.items():
        agents = {kind: value for kind, value in record.conditions.items() if kind in (Condition.REGISTERED,)}
        model.node_devices[name] = replace(record, conditions=agents)
    model.reconcile()
    assert shown(model) == (3, 1)
