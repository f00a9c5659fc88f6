"""Numbers that contradict the lists beside them."""

from typing import Any

import pytest
from nodedevice_operator.capacity.decide import contradictions, desired_count, plausible_available
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord, NodeDeviceRecord

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.objects.records import held

LISTED = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


def kept(device_id: str, health: str = "Healthy") -> dict[str, DeviceRecord]:
    return {device_id: DeviceRecord(health, "", False, ())}


def row(name: str, believed: int, reported: str = "", *held_: AllocationRecord, **fields: Any) -> Any:
    """Four GPUs, of which the first is listed as held if any are; `fields` as reported of them."""
    devices = kept("gpu-0") if held_ else {}
    record = node_device(**{"listed": LISTED, "devices": devices, "allocations": held_, **fields})
    return pytest.param(record, believed, reported, id=name)


FIRST, SECOND = held("gpu-0"), held("gpu-0", pod="pod-b")
FREE = "the devices listed are healthy and not allocated"


@pytest.mark.parametrize(
    ("record", "believed", "reported"),
    [
        row("all free", 4, available=4),
        row("fewer, as cordoned", 2, available=2),
        row("one held", 3, "", FIRST, available=3, allocated=1),
        row("one broken", 3, f"available is 4, but 3 of {FREE}", available=4, devices=kept("gpu-0", "Unhealthy")),
        row("a list that is cut", 40, available=40, devices_omitted=96),
        row("no list", 4, available=4, listed=()),
        row("more held", 0, "allocated is 2, but 1 devices are listed as allocated", FIRST, allocated=2),
        row("allocations that are cut", 0, "", FIRST, allocated=2, allocations_omitted=1),
        row("an allocation that is cut", 0, "", held("gpu-0", omitted=1), allocated=2),
        row("not listed", 0, "gpu-9 is allocated, but is not among the devices", held("gpu-9"), allocated=1),
        row("held twice", 0, "gpu-0 is allocated to two pods, uid-pod-a and uid-pod-b", FIRST, SECOND, allocated=1),
    ],
)
def test_what_is_believed_and_reported(record: NodeDeviceRecord, believed: int, reported: str) -> None:
    assert plausible_available(record) == believed
    assert "; ".join(contradictions(record)) == reported
    assert desired_count(record) == record.allocated + believed, "what pods hold is never doubted"


def test_a_few_sentences_are_enough() -> None:
    ids = tuple(f"odd-{number}" for number in range(100))
    record = node_device(allocated=100, listed=LISTED, allocations=(held(*ids),))
    assert len(contradictions(record)) == 3
