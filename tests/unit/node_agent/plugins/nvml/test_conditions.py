"""What the driver reports at each reading, and what it means for the GPU."""

import pytest
from msgspec import structs
from nodedevice_agent.plugins.nvml.driver_troubles import EFFECTS, Fabric, Reading, found
from nodedevice_agent.plugins.nvml.settings import GpuHealthSettings

# by setting: what is reported, the reason, and words of the message
ALL = [
    ("reset_required", Reading(recovery_action=1), "ResetRequired", "requests a reset of the GPU"),
    ("reset_required", Reading(recovery_action=2), "ResetRequired", "requests a reboot of the node"),
    ("reset_required", Reading(recovery_action=8), "ResetRequired", "requests recovery action 8"),
    ("peer_to_peer_drain", Reading(recovery_action=3), "PeerToPeerDrain", "an end of its peer-to-peer traffic"),
    ("row_remap_failed", Reading(row_remap_failed=True), "RowRemapFailed", "have the GPU replaced"),
    ("row_remap_pending", Reading(row_remap_pending=True), "RowRemapPending", "at the next reset: drain it and reset"),
    ("page_retirement_pending", Reading(page_retirement_pending=True), "PageRetirementPending", "retired at the next"),
    ("fabric", Reading(fabric=Fabric(1)), "FabricNotReady", "has not started"),
    ("fabric", Reading(fabric=Fabric(2, health=1)), "FabricNotReady", "is in progress"),
    ("fabric", Reading(fabric=Fabric(3, 999)), "FabricNotReady", "has failed with NVML error 999"),
    ("fabric", Reading(fabric=Fabric(4)), "FabricNotReady", "is in state 4"),
    ("fabric", Reading(fabric=Fabric(3, health=2)), "FabricUnhealthy", "reports this GPU as unhealthy"),
    ("fabric_limited", Reading(fabric=Fabric(3, health=3)), "FabricLimited", "less bandwidth for this GPU"),
]


@pytest.mark.parametrize(("key", "now", "reason", "words"), ALL, ids=lambda value: str(value)[:40])
def test_each_has_a_reason_of_its_own_and_a_setting(key: str, now: Reading, reason: str, words: str) -> None:
    ((trouble, effect),) = found(now, EFFECTS)
    assert (trouble.reason, words in trouble.message, effect) == (reason, True, EFFECTS[key])
    for other in EFFECTS:
        assert list(found(now, {**EFFECTS, other: "ignore"})) == ([] if other == key else [(trouble, EFFECTS[key])])
    for set_to in ("report", "unhealthy"):
        assert list(found(now, {**EFFECTS, key: set_to})) == [(trouble, set_to)]


@pytest.mark.parametrize("now", [Reading(), Reading(fabric=Fabric(3)), Reading(fabric=Fabric(3, health=1))])
def test_nothing_is_wrong(now: Reading) -> None:
    assert not list(found(now, EFFECTS))


def test_what_takes_it_out_of_service_comes_first() -> None:
    everything = Reading(
        recovery_action=1, row_remap_failed=True, row_remap_pending=True, page_retirement_pending=True, fabric=Fabric(1)
    )
    reasons = [trouble.reason for trouble, _ in found(everything, EFFECTS)]
    assert reasons == ["ResetRequired", "RowRemapFailed", "FabricNotReady", "RowRemapPending", "PageRetirementPending"]


def test_the_settings_are_these_with_these_defaults() -> None:
    assert structs.asdict(GpuHealthSettings()) == dict(EFFECTS)
    assert {key for key, *_ in ALL} == set(EFFECTS)
