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


UNREPORTED: dict[str, Any] = {"has_status": False}


def row(name: str, before: NodeDeviceRecord, after: NodeDeviceRecord, cordoned: str = "", uncordoned: str = "") -> Any:
    """cordoned, uncordoned: what is reported as such; empty: nothing."""
    found = ("DevicesCordoned", "cordoned", cordoned), ("DevicesUncordoned", "uncordoned", uncordoned)
    wanted = [(reason, text.format(f"of {GPU} on node-a {word}")) for reason, word, text in found if text]
    return pytest.param(before, after, wanted, id=name)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        row("another", cordoned("0", "3"), cordoned("3", "4"), "1 device (4) {}", "1 device (0) {}"),
        row(
            *("with two names, and one that was there", cordoned("4", by={"4": "carol"})),
            cordoned("0", "3", "4", "5", by={"0": "bob", "3": "alice", "4": "carol"}),
            "3 devices (0, 3, 5) {} by alice, bob",
        ),
        row(
            *("who uncordoned it is unknown", cordoned("0", "3", by={"0": "alice", "3": "bob"})),
            cordoned("3", by={"3": "bob"}),
            uncordoned="1 device (0) {} (cordoned by alice)",
        ),
        row("all", cordoned("all"), cordoned(), uncordoned="all devices {}"),
        row("the operator's own, which has another Event", cordoned(lost=("gpu-0",)), cordoned("gpu-0")),
        row("many", record(cordons=300), record(cordons=420), "120 devices {}"),
        row("the kubelet serves it", cordoned(), cordoned("gpu-0", served_by=names.SERVED_BY_KUBELET)),
        row("kept without its lists from now on", cordoned("gpu-0"), record(cordons=1)),
        row("nothing reported", cordoned(**UNREPORTED), cordoned("gpu-0", **UNREPORTED), "1 device (gpu-0) {}"),
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
    assert len(found.by) == 8
    assert found.sentence().endswith(" by admin-00, admin-01, admin-02, admin-03, admin-04 and 3 more")


def test_cordons_that_are_there_at_a_start_are_no_transition() -> None:
    assert reported(None, cordoned("gpu-0")) == []
