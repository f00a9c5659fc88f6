"""The parts of `make scheduling` that are not the real thing: agents in their model, and what is best to be had."""

import pytest
from nodedevice_api import assigned_parts

from hack.scheduling.first_fit import placed_units
from hack.scheduling.node_model import CONTAINER, GPUS, RESOURCE, UNITS, BoundPod, NodeModel

_FIRST = "GPU-a-0"


def _pod(uid: str, units: int, gpu: str | None = None) -> BoundPod:
    assigned = None if gpu is None else assigned_parts.encode(uid, {RESOURCE: {CONTAINER: {gpu: units}}})
    return BoundPod("default", uid, uid, units, assigned)


@pytest.mark.parametrize(
    ("pods", "placed"),
    [([], 0), ([50, 30, 80], 160), ([50, 40, 30], 120), ([81], 0), ([60, 60, 60, 20, 20], 160), ([50, 50, 50], 100)],
)
def test_first_fit_decreasing_on_two_devices(pods: list[int], placed: int) -> None:
    assert placed_units(pods, devices=2, size=80) == placed


def test_an_agent_takes_what_is_assigned_and_chooses_where_nothing_is() -> None:
    model = NodeModel("a")
    model.bound(_pod("1", 50, "GPU-a-3"))
    model.bound(_pod("2", 30))
    assert model.free()["GPU-a-3"] == 0, "the fullest GPU that has room"
    assert (model.units, model.waits, model.refused) == (80, 0, 0)


def test_an_assignment_without_room_is_counted_and_another_gpu_taken() -> None:
    model = NodeModel("a")
    model.bound(_pod("1", 50, _FIRST))
    model.bound(_pod("2", 40, _FIRST))
    assert (model.free()[_FIRST], model.units, model.waits, model.refused) == (30, 90, 0, 1)


def test_a_pod_that_fits_on_no_gpu_waits_until_one_ends() -> None:
    model = NodeModel("a")
    for number in range(GPUS):
        model.bound(_pod(str(number), UNITS - 30))
    model.bound(_pod("large", 31))
    assert (model.waits, model.units) == (1, GPUS * (UNITS - 30))
    model.released("0")
    assert (model.waits, model.units) == (1, (GPUS - 1) * (UNITS - 30) + 31)


def test_the_status_has_what_is_held() -> None:
    model = NodeModel("a")
    model.bound(_pod("1", 50, _FIRST))
    status = model.status()["status"]
    assert status["available"] == GPUS * UNITS - 50
    assert status["devices"][0]["parts"] == {"total": UNITS, "healthy": UNITS, "allocated": 50, "available": 30}
    assert status["allocations"][0]["parts"] == [{"parent": _FIRST, "parts": 50, "numbers": "0-49"}]
