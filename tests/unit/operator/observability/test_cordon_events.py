"""Which devices are reported as cordoned and uncordoned, and by whom."""

from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.aggregates import DeviceAggregate
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.operator_model import GPU
from tests.unit.operator.observability.changes import record, reported


def cordoned(
    *device_ids: str, lost: tuple[str, ...] = (), by: dict[str, str] | None = None, **fields: Any
) -> NodeDeviceRecord:
    ids = frozenset(device_ids)
    return record(cordons=len(ids), cordoned_ids=ids, cordoned_by=by or {}, lost_cordons=frozenset(lost), **fields)


ON_A = f"of {GPU} on node-a"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        pytest.param(
            cordoned("gpu-0", "gpu-3"),
            cordoned("gpu-3", "gpu-4"),
            [
                ("DevicesCordoned", f"1 device (gpu-4) {ON_A} cordoned"),
                ("DevicesUncordoned", f"1 device (gpu-0) {ON_A} uncordoned"),
            ],
            id="one for another",
        ),
        pytest.param(
            cordoned("gpu-4", by={"gpu-4": "carol"}),
            cordoned("gpu-0", "gpu-3", "gpu-4", "gpu-5", by={"gpu-0": "bob", "gpu-3": "alice", "gpu-4": "carol"}),
            [("DevicesCordoned", f"3 devices (gpu-0, gpu-3, gpu-5) {ON_A} cordoned by alice, bob")],
            id="with two names, and one that was there",
        ),
        pytest.param(
            cordoned("gpu-0", "gpu-3", by={"gpu-0": "alice", "gpu-3": "bob"}),
            cordoned("gpu-3", by={"gpu-3": "bob"}),
            [("DevicesUncordoned", f"1 device (gpu-0) {ON_A} uncordoned (cordoned by alice)")],
            id="nobody knows by whom it was uncordoned",
        ),
        pytest.param(cordoned("all"), cordoned(), [("DevicesUncordoned", f"all devices {ON_A} uncordoned")], id="word"),
        pytest.param(
            cordoned(lost=("gpu-0",)), cordoned("gpu-0"), [], id="the operator's own, which has another Event"
        ),
        pytest.param(
            record(cordons=300), record(cordons=420), [("DevicesCordoned", f"120 devices {ON_A} cordoned")], id="many"
        ),
        pytest.param(
            cordoned(),
            cordoned("gpu-0", served_by=names.SERVED_BY_KUBELET),
            [],
            id="not possible: the kubelet serves it",
        ),
        pytest.param(cordoned("gpu-0"), record(cordons=1), [], id="kept without its lists from now on"),
        pytest.param(
            cordoned(has_status=False),
            cordoned("gpu-0", has_status=False),
            [("DevicesCordoned", f"1 device (gpu-0) {ON_A} cordoned")],
            id="its agent has reported nothing",
        ),
    ],
)
def test_cordons(before: NodeDeviceRecord, after: NodeDeviceRecord, wanted: list[tuple[str, str]]) -> None:
    assert reported(before, after) == wanted
    kinds = {(event.type, event.about.kind, event.about.name) for event in transitions(before, after)}
    assert kinds == ({("Normal", "NodeDevice", after.name)} if wanted else set())


def test_an_event_that_waits_has_few_names() -> None:
    ids = frozenset(f"gpu-{number:02}" for number in range(80))
    by = frozenset(f"admin-{number:02}" for number in range(80))
    found = DeviceAggregate(GPU, "node-a", ids, became="cordoned", by=by).bounded()
    assert (len(found.by), found.sentence().partition(" by ")[2]) == (
        8,
        "admin-00, admin-01, admin-02, admin-03, admin-04 and 3 more",
    )


def test_cordons_that_are_there_at_a_start_are_no_transition() -> None:
    assert reported(None, cordoned("gpu-0")) == []
