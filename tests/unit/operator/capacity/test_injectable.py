"""Capacity where devices cannot reach containers: nothing that is free is offered, and what is held stays."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition as Kind
from nodedevice_api.names import Reason
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition

from tests.fakes.operator.operator_model import GPU, OperatorModel, node_device, settle


def reports(status: str, **fields: Any) -> NodeDeviceRecord:
    record = node_device(**fields)
    return replace(
        record, conditions={**record.conditions, Kind.INJECTABLE: StoredCondition(status, "Why", "", "then", 1)}
    )


@pytest.mark.parametrize(
    ("status", "fields", "shown"),
    [
        pytest.param("True", {"available": 3, "allocated": 1}, 4, id="injectable"),
        pytest.param("Unknown", {"available": 3, "allocated": 1}, 4, id="nobody is meant to inject"),
        pytest.param("False", {"available": 3, "allocated": 1}, 1, id="held ones stay"),
        pytest.param(
            "False", {"available": 1, "allocated": 1, "reserved": 2}, 3, id="and those that bound pods wait for"
        ),
        pytest.param("False", {"available": 3}, None, id="nothing held"),
        pytest.param("False", {"available": 3, "releasing": 1}, None, id="releasing is not held"),
    ],
)
@pytest.mark.parametrize("was_advertised", [True, False])
def test_number_shown(status: str, fields: dict[str, int], shown: int | None, was_advertised: bool) -> None:
    model = OperatorModel()
    if was_advertised:
        settle(model, [reports("True", available=4)])
    settle(model, [reports(status, **fields)])
    assert model.shown() == (shown, shown)


def test_the_condition_reports_why_and_all_comes_back() -> None:
    model = OperatorModel()
    settle(model, [reports("True", available=4)])
    settle(model, [reports("False", available=3, allocated=1)])
    reported = model.condition(Kind.ADVERTISED)
    assert (reported.status, reported.reason) == ("True", Reason.NOT_INJECTABLE)
    settle(model, [reports("False", available=4)])
    reported = model.condition(Kind.ADVERTISED)
    assert (reported.status, reported.reason) == ("False", Reason.NOT_INJECTABLE)
    settle(model, [reports("True", available=4)])
    assert model.node.seen(GPU).capacity == 4
    assert model.condition(Kind.ADVERTISED).reason == Reason.ADVERTISED
    assert model.reported() == []
    assert model.repairs == []
