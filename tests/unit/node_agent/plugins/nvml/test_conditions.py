"""What the driver reports at each reading, and what it means for the GPU."""

import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import EFFECTS, Fabric, Reading, Trouble, found

REMEDY = "see systemctl status nvidia-fabricmanager on the node; the GPU is used again by itself"
RESET = "drain it and reset it (nvidia-smi --gpu-reset) when its pods have ended, or reboot the node"
# by setting: what is reported, the reason and the message
ALL = [
    ("reset_required", Reading(recovery_action=1), "ResetRequired", "the driver requests a reset of the GPU"),
    ("reset_required", Reading(recovery_action=2), "ResetRequired", "the driver requests a reboot of the node"),
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
            (Fabric(3, 999), "has failed with NVML error 999"),
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
