"""Which pods go because of a device, when, and never more than the rate allows."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord
from nodedevice_operator.remediation.eviction_policy import (
    BURST,
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    EvictionCandidate,
    PendingEvictions,
    Policy,
    candidates,
    policy_of,
)

from tests.fakes.operator.operator_model import GPU, node_device, waits
from tests.unit.operator.objects import records

EVICT: dict[str, Policy] = {GPU: "evict"}


def held(
    health: str = "Unhealthy", *, is_missing: bool = False, endpoint: str = "Running", **more: Any
) -> NodeDeviceRecord:
    allocation = records.held("gpu-0", "gpu-1", **{"uid": "uid-a", **more})
    devices = {"gpu-0": DeviceRecord(health, "x", is_missing, ()), "gpu-1": DeviceRecord("Healthy", "", False, ())}
    return node_device(devices=devices, allocations=(allocation,), endpoint=endpoint)


def waiting(reason: str, **more: Any) -> NodeDeviceRecord:
    return node_device(waiting=(waits("uid-a", "main", reason, "default", "pod-a", **more),))


RELEASED = DeviceRecord("Unhealthy", names.Reason.DRIVER_RELEASED, False, ())
BROKEN = DeviceRecord("Unhealthy", "Xid79", False, ())


def devices(first: DeviceRecord, second: DeviceRecord) -> NodeDeviceRecord:
    return replace(held(), devices={"gpu-0": first, "gpu-1": second})


WITHOUT = f"container main runs without its devices of {GPU}"
NEVER = f"container main never gets its devices of {GPU} (AllocateFailed)"
NOT_LISTED = f"gpu-0 of {GPU} no longer listed by the device plugin"


def test_of_several_reasons_the_first_is_given() -> None:
    record = held(not_injected=True)
    without, broken = record.allocations[0], replace(record.allocations[0], not_injected=False)
    found = candidates([replace(record, allocations=(without, broken))], EVICT)
    assert found == {"uid-a": EvictionCandidate("default", "pod-a", "uid-a", "node-a", WITHOUT)}


@pytest.mark.parametrize(
    ("policies", "policy"),
    [({}, "report"), (EVICT, "evict"), ({"*": "evict"}, "evict"), ({"*": "evict", GPU: "report"}, "report")],
)
def test_policy(policies: dict[str, Policy], policy: Policy) -> None:
    assert policy_of(GPU, policies) == policy


@pytest.mark.parametrize(
    ("record", "why"),
    [
        pytest.param(held(), f"gpu-0 of {GPU} unhealthy", id="one of its devices broke"),
        pytest.param(held("Healthy"), None, id="all well"),
        pytest.param(held(is_releasing=True), None, id="its pod is over"),
        pytest.param(held(is_missing=True), NOT_LISTED, id="no longer listed"),
        pytest.param(held(endpoint="Stopped"), None, id="the plugin is away"),
        pytest.param(held(is_missing=True, endpoint="Stopped"), None, id="no longer listed, and the plugin is away"),
        pytest.param(held(is_missing=True, endpoint="Gone"), None, id="no longer listed, and the plugin is gone"),
        pytest.param(held("Healthy", not_injected=True), WITHOUT, id="without"),
        pytest.param(held(namespace=""), None, id="an agent names no namespace"),
        pytest.param(held(name=""), None, id="an agent names no pod"),
        pytest.param(waiting("NotEnoughDevices"), None, id="waits"),
        pytest.param(waiting("NotEnoughDevices", not_injected=True), WITHOUT, id="waits, and runs all the same"),
        pytest.param(waiting("AllocateFailed", final=True), NEVER, id="waits for ever"),
        # a driver upgrade ends; a device that broke beside it counts
        pytest.param(devices(RELEASED, RELEASED), None, id="a driver was released"),
        pytest.param(devices(RELEASED, BROKEN), f"gpu-1 of {GPU} unhealthy", id="one broke beside a released driver"),
    ],
)
def test_a_pod_is_a_candidate(record: NodeDeviceRecord, why: str | None) -> None:
    found = candidates([record], EVICT)
    assert [pod.why for pod in found.values()] == ([] if why is None else [why])
    assert candidates([record], {}) == {}


@pytest.fixture
def pending() -> PendingEvictions:
    return PendingEvictions(delay_seconds=30, per_minute=6, now=1000)


def due(pending: PendingEvictions, found: list[str], now: float) -> list[str]:
    """Which pods are evicted after a check that finds these."""
    pending.update(found, now)
    return list(pending.due(now))


def test_a_blip_is_waited_out_and_starts_again(pending: PendingEvictions) -> None:
    assert due(pending, ["a"], 1000) == due(pending, ["a"], 1020) == due(pending, [], 1021) == []
    assert due(pending, ["a"], 1025) == due(pending, ["a"], 1054) == []
    assert due(pending, ["a"], 1055) == ["a"]


def test_a_refusal_is_tried_again_later_and_later(pending: PendingEvictions) -> None:
    due(pending, ["a"], 1000)
    now, pauses = 1030.0, []
    for _ in range(8):
        pending.tried("a", now, is_rejected=True)
        next_at = pending.by_pod["a"].next_at
        assert next_at is not None
        pauses.append(next_at - now)
        assert due(pending, ["a"], next_at - 0.1) == []
        now = next_at
    assert pauses[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
    assert pauses[-1] == LONGEST_RETRY_SECONDS
    pending.tried("a", now, is_rejected=True, retry_after_seconds=1000)
    assert pending.by_pod["a"].next_at == now + 1000


def test_a_storm_goes_at_the_rate_and_no_faster(pending: PendingEvictions) -> None:
    pods = [f"uid-{number:03}" for number in range(100)]
    gone: list[tuple[int, str]] = []
    pending.update(pods, 1000)
    for second in range(30, 630):
        for uid in due(pending, pods, 1000 + second):
            gone.append((second, uid))
            pending.tried(uid, 1000 + second, is_rejected=False)
    assert [uid for _, uid in gone] == sorted({uid for _, uid in gone})
    assert len(gone) == pytest.approx(BURST + 600 * 6 / 60, abs=1)
    assert max(sum(begin <= second < begin + 60 for second, _ in gone) for begin in range(630)) <= BURST + 6
