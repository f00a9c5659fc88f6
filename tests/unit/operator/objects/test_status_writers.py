"""Who has written a NodeDevice's status: whose it is, and who edited it."""

from typing import Any

import pytest
from nodedevice_operator.objects.nodedevice import node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

from tests.unit.operator.objects.bodies import node_device_body, of_json, wrote

BY_X = {"manager": "x", "subresource": "status"}


@pytest.mark.parametrize(
    ("entry", "editors"),
    [
        pytest.param(wrote("nodedevice-agent", "status", "total", conditions=("Healthy",)), set(), id="the agent"),
        pytest.param(wrote("nodedevice-operator", "status", conditions=("Ready",)), set(), id="the operator"),
        pytest.param(wrote("x", "status", conditions=("Ready",)), {"x"}, id="a condition of the operator's"),
        pytest.param(wrote("x", "status", conditions=("Healthy", "Mine")), {"x"}, id="a condition of the agent's"),
        pytest.param(wrote("x", "status", conditions=("Mine",)), set(), id="a condition of its own"),
        pytest.param({"manager": "kubectl", "fieldsV1": {"f:spec": {"f:cordonedDevices": {}}}}, set(), id="a cordon"),
        pytest.param({**BY_X, "fieldsV1": {"f:status": 7}}, set(), id="no such form"),
        pytest.param({**BY_X, "fieldsV1": {"f:status": {"f:conditions": 7}}}, set(), id="conditions of no such form"),
    ],
)
def test_who_edited_a_status(entry: dict[str, Any], editors: set[str]) -> None:
    body = node_device_body(total=1)
    body["metadata"]["managedFields"] = [entry]
    assert node_device_record(of_json(body, NodeDeviceSchema)).edited_by == editors


def test_of_very_many_editors_the_first_are_named() -> None:
    body = node_device_body(total=1)
    body["metadata"]["managedFields"] = [wrote(f"editor-{number}", "status", "total") for number in range(20)]
    assert node_device_record(of_json(body, NodeDeviceSchema)).edited_by == {f"editor-{number}" for number in range(8)}


TOTAL_BY_HAND = wrote("kubectl-patch", "status", "total", "available")
BEFORE_FIRST_APPLY = wrote("before-first-apply", "status", "total", conditions=("Ready",))


@pytest.mark.parametrize(
    ("entries", "is_advertised", "is_of_agent"),
    [
        pytest.param([wrote("nodedevice-agent", "status", "total")], False, True, id="the agent"),
        pytest.param([wrote("nodedevice-agent", "status", "endpoint"), TOTAL_BY_HAND], False, True, id="edited since"),
        pytest.param([TOTAL_BY_HAND], False, False, id="just by hand"),
        pytest.param([TOTAL_BY_HAND], True, True, id="advertised, and edited after a reset"),
        pytest.param([wrote("x", "status", conditions=("Mine",))], False, True, id="a condition of another"),
        pytest.param([BEFORE_FIRST_APPLY], False, True, id="reset, and applied to since"),
        pytest.param([], False, True, id="reset"),
    ],
)
def test_only_agents_report_a_status(entries: list[dict[str, Any]], is_advertised: bool, is_of_agent: bool) -> None:
    reported = {"type": "Advertised", "status": "True" if is_advertised else "False"}
    body = node_device_body(total=1, endpoint={"state": "Running"}, conditions=[reported])
    body["metadata"]["managedFields"] = entries
    record = node_device_record(of_json(body, NodeDeviceSchema))
    assert record.has_status == is_of_agent
    assert "before-first-apply" not in record.edited_by
