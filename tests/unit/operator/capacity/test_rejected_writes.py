"""What is reported of a Node whose write is refused, resource by resource, and whose the names stay."""

from dataclasses import replace

import pytest
from nodedevice_api import names
from nodedevice_api.names import Reason
from nodedevice_operator.capacity.decide import ResourceStatus, decide, statuses_when_rejected
from nodedevice_operator.leases.agent_liveness import ALIVE, expired
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.reconcile import conditions
from nodedevice_operator.reconcile.conditions import agent_events

from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, node_device, settle

SILENT = replace(expired(60), is_withdrawn=True)
LESS, NEW = node_device(available=3), node_device(NIC, available=3)


def refused(model: OperatorModel, *changed: NodeDeviceRecord) -> dict[str, ResourceStatus | None]:
    """What is reported after these were published and the write was refused."""
    for record in changed:
        model.publish(record)
    records = list(model.node_devices.values())
    decision = decide(model.node.record(), records, model.history, model.now, model.agent)
    return dict(statuses_when_rejected(model.node.record(), records, decision))


@pytest.fixture
def model() -> OperatorModel:
    made = OperatorModel()
    settle(made, [node_device(available=4)])
    return made


def reasons(statuses: dict[str, ResourceStatus | None]) -> dict[str, str | None]:
    return {resource: verdict.reason if verdict else None for resource, verdict in statuses.items()}


@pytest.mark.parametrize(
    ("foreign", "changed", "gpu", "nic"),
    [
        pytest.param(None, [], Reason.ADVERTISED, "", id="nothing is to be written"),
        pytest.param(None, [LESS], Reason.UPDATE_REFUSED, "", id="a number that is not shown"),
        pytest.param(None, [NEW], Reason.ADVERTISED, Reason.WRITE_REFUSED, id="a new name beside one that is right"),
        pytest.param(None, [node_device(endpoint="Gone")], Reason.UPDATE_REFUSED, "", id="one that should have left"),
        pytest.param(GPU, [NEW], Reason.UPDATE_REFUSED, Reason.WRITE_REFUSED, id="a new name waits for a forced write"),
        pytest.param(NIC, [LESS, NEW], Reason.UPDATE_REFUSED, Reason.FOREIGN_OWNER, id="a conflict all the same"),
    ],
)
def test_the_reason_of_each_name(
    model: OperatorModel, foreign: str | None, changed: list[NodeDeviceRecord], gpu: str, nic: str
) -> None:
    if foreign is not None:
        model.node.update("kubelet", foreign, 9)
    assert reasons(refused(model, *changed)) == {GPU: gpu, **({NIC: nic} if nic else {})}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"delivery": names.DELIVERY_KUBELET}, Reason.BY_KUBELET),
        ({"served_by": names.SERVED_BY_KUBELET}, Reason.SERVED_BY_KUBELET),
        ({"served_by": names.SERVED_BY_DRA}, Reason.SERVED_BY_DRA),
    ],
)
def test_what_others_count_was_not_to_be_written(model: OperatorModel, fields: dict[str, str], reason: str) -> None:
    model.node.update("kubelet", NIC, 3)
    found = refused(model, LESS, node_device(NIC, available=3, **fields))
    assert found[NIC] == ResourceStatus(True, reason, not_before=model.node.made)
    assert reasons(found)[GPU] == Reason.UPDATE_REFUSED


def test_that_devices_were_withdrawn_is_not_forgotten(model: OperatorModel) -> None:
    model.agent = SILENT
    model.reconcile()
    model.node.update("kubelet", GPU, 9)
    assert refused(model) == {GPU: None}


def test_an_agent_that_is_back_offers_nothing_that_is_not_shown(model: OperatorModel) -> None:
    model.agent = SILENT
    model.reconcile()
    model.agent = ALIVE
    [verdict] = refused(model).values()
    [record] = model.node_devices.values()
    [event] = agent_events(record, conditions.desired(record, verdict, ALIVE, rejection="no"))
    assert event.reason == Reason.LEASE_RENEWED
    assert event.message.endswith("renews its Lease again")
