"""Which changes of advertised numbers are reported as Events of ordinary operation."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.capacity.decide import decide
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, node_device


def gpus(available: int, **fields: Any) -> NodeDeviceRecord:
    return node_device(total=8, healthy=available, available=available, **fields)


class Reported(OperatorModel):
    """A model that collects what one reconcile reports of numbers."""

    def numbers(self, *records: NodeDeviceRecord) -> list[tuple[str, str, str]]:
        """Kind of the object, reason and message, of the first decision; then it is carried out."""
        for record in records:
            self.publish(record)
        decision = decide(self.node.record(), self.node_devices.values(), self.history, self.now, self.agent)
        self.reconcile()
        return [(event.about.kind, event.reason, event.message) for event in decision.changes]


def test_first_and_then_another_number_of_each_resource_for_itself() -> None:
    model = Reported()
    first = ("NodeDevice", "CapacityAdvertised", f"{GPU} on node-a: 8 devices advertised")
    assert model.numbers(gpus(8)) == [first]
    assert model.numbers(gpus(8)) == []
    nic = ("NodeDevice", "CapacityAdvertised", f"{NIC} on node-a: 2 devices advertised")
    assert model.numbers(gpus(8), node_device(NIC, total=2, healthy=2, available=2)) == [nic]
    # what pods take changes no number
    assert model.numbers(replace(gpus(5), allocated=3, healthy=8)) == []
    changed = ("NodeDevice", "CapacityChanged", f"{GPU} on node-a: 1 device advertised, 8 before")
    assert model.numbers(gpus(1)) == [changed]


def test_a_start_reports_only_what_changed_while_no_operator_ran() -> None:
    model = Reported()
    model.numbers(gpus(8))
    model.restart()
    assert model.numbers() == []
    model.restart()
    assert [reason for _, reason, _ in model.numbers(gpus(7))] == ["CapacityChanged"]


def test_a_name_that_goes_with_its_plugin_and_comes_back() -> None:
    model = Reported()
    model.numbers(gpus(8))
    gone = f"{GPU} on node-a: no longer advertised, 8 before (EndpointGone)"
    assert model.numbers(gpus(0, endpoint="Gone")) == [("NodeDevice", "CapacityChanged", gone)]
    assert [reason for _, reason, _ in model.numbers(gpus(8))] == ["CapacityAdvertised"]


def test_a_name_whose_nodedevice_is_gone_is_reported_on_the_node() -> None:
    model = Reported()
    model.numbers(gpus(8))
    model.node_devices.clear()
    assert model.numbers() == []
    model.now += 100
    assert model.numbers() == [("Node", "CapacityChanged", f"{GPU} on node-a: no longer advertised, 8 before")]


def test_a_repaired_drift_has_an_event_of_its_own_and_a_number_without_an_owner_none() -> None:
    model = Reported()
    model.numbers(gpus(8))
    model.node.update("stranger", GPU, 77)
    assert model.numbers() == []
    assert model.repairs
    model.node.forget_owners()
    assert model.numbers() == []
    assert len(model.applies) > 2


@pytest.mark.parametrize("available", [79, 64])
def test_parts_of_one_device_change_with_every_pod(available: int) -> None:
    model = Reported()
    parts: dict[str, Any] = {"total": 80, "healthy": 80}
    model.numbers(node_device(available=80, largest_available=80, **parts))
    held = node_device(available=available, allocated=80 - available, largest_available=available - 8, **parts)
    assert model.numbers(held) == []


def test_why_it_is_another_number_than_the_agent_reports() -> None:
    model = Reported()
    model.numbers(gpus(8))
    conditions = gpus(6).conditions
    not_injectable = replace(conditions[names.Condition.HEALTHY], status="False")
    held = gpus(6, allocated=2, conditions={**conditions, names.Condition.INJECTABLE: not_injectable})
    wanted = f"{GPU} on node-a: 2 devices advertised, 8 before (NotInjectable)"
    assert [message for _, _, message in model.numbers(held)] == [wanted]
