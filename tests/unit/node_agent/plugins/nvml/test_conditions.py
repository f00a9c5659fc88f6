"""What the driver reports at each reading, and what it means for the GPU."""

import pytest
from msgspec import structs
from nodedevice_agent.plugins.nvml.driver_troubles import EFFECTS, RECOVERY_ACTIONS, Fabric, Reading, Trouble, found
from nodedevice_agent.plugins.nvml.settings import GpuHealthSettings

REMEDY = "see systemctl status nvidia-fabricmanager on the node; the GPU is used again by itself"
RESET = "drain it and reset it (nvidia-smi --gpu-reset) when its pods have ended, or reboot the node"
# by setting: what is reported, the reason and the message
ALL = [
    ("reset_required", Reading(recovery_action=1), "ResetRequired", "the driver requests a reset of the GPU"),
    ("reset_required", Reading(recovery_action=2), "ResetRequired", "the driver requests a reboot of the node"),
    (
        "reset_required",
        Reading(recovery_action=4),
        "ResetRequired",
        "the driver requests draining the GPU, then a reset",
    ),
    (
        "reset_required",
        Reading(recovery_action=5),
        "ResetRequired",
        "the driver requests a recovery of its IMEX domain",
    ),
    ("reset_required", Reading(recovery_action=6), "ResetRequired", "the driver requests a reset of its bus"),
    ("reset_required", Reading(recovery_action=7), "ResetRequired", "the driver requests a reboot of the system"),
    ("reset_required", Reading(recovery_action=8), "ResetRequired", "the driver requests recovery action 8"),
    (
        "peer_to_peer_drain",
        Reading(recovery_action=3),
        "PeerToPeerDrain",
        "the driver requests an end of its peer-to-peer traffic",
    ),
    (
        "row_remap_failed",
        Reading(row_remap_failed=True),
        "RowRemapFailed",
        "a row of its memory is broken and could not be replaced by a spare one: have the GPU replaced",
    ),
    (
        "row_remap_pending",
        Reading(row_remap_pending=True),
        "RowRemapPending",
        f"a row of its memory is replaced by a spare one at the next reset: {RESET}",
    ),
    (
        "page_retirement_pending",
        Reading(page_retirement_pending=True),
        "PageRetirementPending",
        f"a page of its memory is retired at the next reset: {RESET}",
    ),
    *(
        (
            "fabric",
            Reading(fabric=fabric),
            "FabricNotReady",
            f"its registration with the NVSwitch fabric {words}: {REMEDY}",
        )
        for fabric, words in (
            (Fabric(1), "has not started"),
            (Fabric(2), "is in progress"),
            (Fabric(2, health=1), "is in progress"),
            (Fabric(3, 999), "has failed with NVML error 999"),
            (Fabric(3, 999, 3), "has failed with NVML error 999"),
            (Fabric(4), "is in state 4"),
        )
    ),
    (
        "fabric",
        Reading(fabric=Fabric(3, health=2)),
        "FabricUnhealthy",
        f"the NVSwitch fabric reports this GPU as unhealthy: {REMEDY}",
    ),
    (
        "fabric_limited",
        Reading(fabric=Fabric(3, health=3)),
        "FabricLimited",
        f"the NVSwitch fabric reports less bandwidth for this GPU: {REMEDY}",
    ),
]


@pytest.mark.parametrize(("key", "now", "reason", "message"), ALL, ids=lambda value: str(value)[:40])
def test_each_has_a_reason_of_its_own_and_a_setting(key: str, now: Reading, reason: str, message: str) -> None:
    trouble = Trouble(reason, message)
    assert list(found(now, EFFECTS)) == [(trouble, EFFECTS[key])]
    for other in EFFECTS:
        assert list(found(now, {**EFFECTS, other: "ignore"})) == ([] if other == key else [(trouble, EFFECTS[key])])
    assert list(found(now, {**EFFECTS, key: "report"})) == [(trouble, "report")]
    assert list(found(now, {**EFFECTS, key: "unhealthy"})) == [(trouble, "unhealthy")]


@pytest.mark.parametrize("now", [Reading(), Reading(fabric=Fabric(3)), Reading(fabric=Fabric(3, health=1))])
def test_nothing_is_wrong(now: Reading) -> None:
    assert not list(found(now, EFFECTS))


def test_the_cause_of_a_request_is_named() -> None:
    ((trouble, _),) = found(Reading(recovery_action=1), EFFECTS, "Xid 7")
    assert trouble.message == "the driver requests a reset of the GPU, after Xid 7"


def test_the_settings_are_these_with_these_defaults() -> None:
    assert structs.asdict(GpuHealthSettings()) == dict(EFFECTS)
    assert {key for key, *_ in ALL} == set(EFFECTS)


def test_only_peer_to_peer_traffic_and_pending_work_leave_a_gpu_in_service() -> None:
    kept = {key for key, effect in EFFECTS.items() if effect != "unhealthy"}
    assert kept == {"peer_to_peer_drain", "row_remap_pending", "page_retirement_pending", "fabric_limited"}
    assert set(RECOVERY_ACTIONS) == set(range(1, 8))


def test_what_takes_it_out_of_service_comes_first() -> None:
    everything = Reading(
        recovery_action=1,
        row_remap_failed=True,
        row_remap_pending=True,
        page_retirement_pending=True,
        fabric=Fabric(1),
    )
    reasons = [trouble.reason for trouble, _ in found(everything, EFFECTS)]
    assert reasons == ["ResetRequired", "RowRemapFailed", "FabricNotReady", "RowRemapPending", "PageRetirementPending"]
