"""Every violation is found: otherwise the crash tests could not fail."""

from typing import Any

import pytest

from tests.robustness.crash.invariants import Holder, Holdings, Ledger, published, shared_devices, unmet, wrong_numbers

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


def test_right_numbers_pass() -> None:
    assert wrong_numbers(status()) == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"total": 4}, id="total"),
        pytest.param({"healthy": 3}, id="healthy"),
        pytest.param({"available": 2}, id="available"),
        pytest.param({"allocated": 2}, id="allocated"),
        pytest.param({"releasing": 1}, id="releasing"),
        pytest.param({"allocations": []}, id="a holder is missing"),
        pytest.param({"allocations": [{"podUID": "p", "container": "m", "deviceIDs": ["x"]}]}, id="an unknown device"),
    ],
)
def test_wrong_numbers_are_found(changes: dict[str, Any]) -> None:
    assert wrong_numbers(status(**changes))


def test_a_device_of_two_pods_is_found() -> None:
    assert shared_devices(holdings(p="ab", q="bc")) == [f"{GPU} b is held by pods ['p', 'q']"]


def test_containers_of_one_pod_may_share_a_device() -> None:
    both: Holdings = {Holder(GPU, "p", "setup"): ("a",), Holder(GPU, "p", "main"): ("a",)}
    assert shared_devices(both) == []


def test_a_changed_holding_is_found() -> None:
    ledger = Ledger()
    assert ledger.add(holdings(p="a")) == []
    assert ledger.add(holdings(p="b"))


def test_a_lost_holding_is_found_while_its_pod_lives() -> None:
    ledger = Ledger()
    ledger.add(published(GPU, status()))
    assert ledger.lost({}, alive={"p"})
    assert ledger.lost({}, alive={"q"}) == []
    assert ledger.lost(holdings(p="a"), alive={"p"}) == []


def test_an_unmet_need_is_found() -> None:
    assert list(unmet([(Holder(GPU, "p", "main"), 2)], holdings(p="a")))
    assert list(unmet([(Holder(GPU, "p", "main"), 1)], holdings(p="a"))) == []
