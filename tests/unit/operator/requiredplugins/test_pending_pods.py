"""Who has to be marked before a resource is advertised, and which resources have been."""

from dataclasses import replace

import pytest
from nodedevice_api import names
from nodedevice_operator.objects.nodedevice import StoredCondition
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.requiredplugins.pending_pods import advertised, to_annotate

from tests.fakes.operator.operator_model import GPU, NIC, node_device

POD = PodRecord("uid-a", "", asks_for=frozenset({GPU}))


@pytest.mark.parametrize(
    ("pod", "is_due"),
    [
        pytest.param(POD, True, id="asks for it"),
        pytest.param(replace(POD, asks_for=frozenset({GPU, NIC, "cpu"})), True, id="and for more"),
        pytest.param(replace(POD, asks_for=frozenset({NIC, "cpu"})), False, id="asks for others"),
        pytest.param(replace(POD, is_ending=True), False, id="is over"),
        pytest.param(
            replace(POD, annotations={"required-plugins.noderesource.dev": "[ nodedevice ]"}), False, id="marked"
        ),
        pytest.param(
            replace(POD, annotations={"required-plugins.noderesource.dev": f"[ nodedevice, {'a' * 1024} ]"}),
            True,
            id="too long to be read in a row of pods",
        ),
    ],
)
def test_to_annotate(pod: PodRecord, is_due: bool) -> None:
    assert to_annotate([pod], frozenset({GPU})) == ((pod,) if is_due else ())


@pytest.mark.parametrize(
    ("delivery", "status", "reason", "is_so"),
    [
        ("nri", "True", names.Reason.ADVERTISED, True),
        ("nri", "False", names.Reason.POLICY_PENDING, False),
        ("nri", "True", names.Reason.BY_KUBELET, False),
        ("kubelet", "True", names.Reason.ADVERTISED, False),
    ],
)
def test_advertised(delivery: str, status: str, reason: str, is_so: bool) -> None:
    conditions = {names.Condition.ADVERTISED: StoredCondition(status, reason, "", "then", 1)}
    record = node_device(delivery=delivery, conditions=conditions)
    assert advertised([record, node_device(NIC, delivery="nri")]) == ({GPU} if is_so else set())
