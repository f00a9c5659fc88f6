"""Every violation is found: otherwise the crash tests could not fail."""

from collections.abc import Sequence
from typing import Any

import pytest
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from tests.robustness.crash.invariants import Holder, Holdings, Ledger, published, shared_devices, unmet, wrong_numbers
from tests.robustness.crash.parts_run import misplaced, without_directory

GPU = "example.com/gpu"


def status(**changes: Any) -> dict[str, Any]:
    """Three devices, one of them unhealthy, one allocated, and the right numbers."""
    devices = [{"id": i, "health": health} for i, health in (("a", "Healthy"), ("b", "Healthy"), ("c", "Unhealthy"))]
    held = [{"podUID": "p", "container": "main", "deviceIDs": ["a"]}]
    numbers = {"total": 3, "healthy": 2, "allocated": 1, "releasing": 0, "available": 1}
    return {**numbers, "devices": devices, "allocations": held, **changes}


def holdings(**held: str) -> Holdings:
    """Pod UID to device IDs, a letter each; all by a container `main`."""
    return {Holder(GPU, uid, "main"): tuple(ids) for uid, ids in held.items()}


def observed(*each: Holdings) -> list[str]:
    """What a ledger says of the last one."""
    ledger = Ledger()
    return [ledger.add(found) for found in each][-1]


def lost(found: Holdings, *alive: str) -> list[str]:
    ledger = Ledger()
    ledger.add(published(GPU, status()))
    return ledger.lost(found, alive)


def placed(*ids: str) -> list[str]:
    """Of a container that requests two units."""
    return misplaced({MAIN: ids}, {MAIN: 2})


def lacking(response: bytes | None, alive: str, *directories: str) -> list[str]:
    checkpoint = Checkpoint((Allocation("p", "main", GPU, {-1: ("GPU-a-0",)}, response),), {})
    return without_directory(checkpoint, {alive}, directories)


MAIN = Holder(GPU, "p", "main")
UNKNOWN = {"podUID": "p", "container": "m", "deviceIDs": ["x"]}
WRONG = {
    "total": wrong_numbers(status(total=4)),
    "healthy": wrong_numbers(status(healthy=3)),
    "available": wrong_numbers(status(available=2)),
    "allocated": wrong_numbers(status(allocated=2)),
    "releasing": wrong_numbers(status(releasing=1)),
    "a holder is missing": wrong_numbers(status(allocations=[])),
    "an unknown device": wrong_numbers(status(allocations=[UNKNOWN])),
    "a device of two pods": shared_devices(holdings(p="ab", q="bc")),
    "a changed holding": observed(holdings(p="a"), holdings(p="b")),
    "a lost holding": lost({}, "p"),
    "an unmet need": list(unmet([(MAIN, 2)], holdings(p="a"))),
    "units of two GPUs": placed("GPU-a-0", "GPU-b-0"),
    "too few units": placed("GPU-a-0"),
    "no directory": lacking(b"", "p"),
}
RIGHT = {
    "numbers": wrong_numbers(status()),
    "a device of two containers of a pod": shared_devices({Holder(GPU, "p", "setup"): ("a",), MAIN: ("a",)}),
    "the same holding": observed(holdings(p="a"), holdings(p="a")),
    "a lost holding of a pod that has ended": lost({}, "q"),
    "a holding that is there": lost(holdings(p="a"), "p"),
    "a met need": list(unmet([(MAIN, 1)], holdings(p="a"))),
    "units of one GPU": placed("GPU-a-0", "GPU-a-1"),
    "a directory": lacking(b"", "p", "p_main"),
    "a directory before there is a response": lacking(None, "p"),
    "no directory of a pod that has ended": lacking(b"", "q"),
}


@pytest.mark.parametrize("sentences", WRONG.values(), ids=WRONG)
def test_a_violation_is_found(sentences: Sequence[str]) -> None:
    assert sentences


@pytest.mark.parametrize("sentences", RIGHT.values(), ids=RIGHT)
def test_what_is_right_passes(sentences: Sequence[str]) -> None:
    assert sentences == []
