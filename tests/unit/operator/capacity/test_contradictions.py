"""Numbers that contradict the lists beside them."""

from typing import Any

import pytest
from nodedevice_operator.capacity.decide import contradictions, desired_count, plausible_available
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord

from tests.fakes.operator.operator_model import node_device

LISTED = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


def held(*ids: str, uid: str = "uid-a", omitted: int = 0, is_releasing: bool = False) -> AllocationRecord:
    return AllocationRecord("default", "pod-a", uid, "main", ids, omitted, is_releasing)


def kept(*ids: str, health: str = "Healthy") -> dict[str, DeviceRecord]:
    return {device_id: DeviceRecord(health, "", False, ()) for device_id in ids}


LIST: dict[str, Any] = {"listed": LISTED}
ONE_HELD: dict[str, Any] = {**LIST, "devices": kept("gpu-0"), "allocations": (held("gpu-0"),)}
HELD_TWICE = (held("gpu-0"), held("gpu-0", uid="uid-b"))


@pytest.mark.parametrize(
    ("fields", "available", "reported"),
    [
        pytest.param({**LIST, "available": 4}, 4, "", id="all free"),
        pytest.param({**LIST, "available": 2}, 2, "", id="fewer, as cordoned"),
        pytest.param({**ONE_HELD, "available": 3, "allocated": 1}, 3, "", id="one held"),
        pytest.param(
            {**LIST, "available": 4, "devices": kept("gpu-0", health="Unhealthy")},
            3,
            "available is 4, but 3 of the devices listed are healthy and not allocated",
            id="one broken",
        ),
        pytest.param({**LIST, "available": 40, "devices_omitted": 96}, 40, "", id="a list that is cut"),
        pytest.param({"available": 4}, 4, "", id="no list"),
        pytest.param(
            {**ONE_HELD, "allocated": 2},
            0,
            "allocated is 2, but 1 devices are listed as allocated",
            id="more held than listed",
        ),
        pytest.param({**ONE_HELD, "allocated": 2, "allocations_omitted": 1}, 0, "", id="allocations that are cut"),
        pytest.param(
            {**ONE_HELD, "allocated": 2, "allocations": (held("gpu-0", omitted=1),)},
            0,
            "",
            id="an allocation that is cut",
        ),
        pytest.param(
            {**LIST, "allocated": 1, "allocations": (held("gpu-9"),)},
            0,
            "gpu-9 is allocated, but is not among the devices",
            id="not listed",
        ),
        pytest.param(
            {**ONE_HELD, "allocated": 1, "allocations": HELD_TWICE},
            0,
            "gpu-0 is allocated to two pods, uid-a and uid-b",
            id="held twice",
        ),
    ],
)
def test_what_is_believed_and_reported(fields: dict[str, Any], available: int, reported: str) -> None:
    record = node_device(**fields)
    assert plausible_available(record) == available
    assert "; ".join(contradictions(record)) == reported
    assert desired_count(record) == record.allocated + available, "what pods hold is never doubted"


def test_a_few_sentences_are_enough() -> None:
    ids = tuple(f"odd-{number}" for number in range(100))
    record = node_device(allocated=100, listed=LISTED, allocations=(held(*ids),))
    assert len(contradictions(record)) == 3
