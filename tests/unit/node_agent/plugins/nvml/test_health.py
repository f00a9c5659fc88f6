"""What takes a GPU out of service, and what brings it back."""

from dataclasses import dataclass, field

import pytest
from nodedevice_agent.plugins.nvml import health as h
from nodedevice_agent.plugins.nvml.health import (
    APPLICATION_XIDS,
    CRITICAL_XIDS,
    GpuHealth,
    HealthRules,
    Reading,
    XidLogLimiter,
    meaning,
)
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

RULES = HealthRules()
WELL = Reading(energy_mj=1000, ecc_uncorrected=0, recovery_action=0)


@dataclass(frozen=True)
class Xid:
    number: int


@dataclass(frozen=True)
class Step:
    """An event, and the reason that is shown after it; "" for none."""

    event: Xid | Reading | str
    reason: str = ""


@dataclass(frozen=True)
class Story:
    id: str
    steps: list[Step]
    rules: HealthRules = field(default_factory=HealthRules)


STORIES = [
    Story("a critical Xid stays", [Step(Xid(79), "Xid79"), Step(WELL, "Xid79")]),
    Story("an application Xid is nothing", [Step(Xid(31)), Step(Xid(43)), Step(WELL)]),
    Story("an unknown Xid is critical", [Step(Xid(9999), "Xid9999")]),
    Story("the first critical Xid is the cause", [Step(Xid(48), "Xid48"), Step(Xid(79), "Xid48")]),
    Story("the energy counter starts again", [Step(WELL), Step(Xid(79), "Xid79"), Step(Reading(energy_mj=10))]),
    Story("the energy counter goes on", [Step(WELL), Step(Xid(79), "Xid79"), Step(Reading(energy_mj=1001), "Xid79")]),
    Story(
        "a counter that is missing once shows nothing", [Step(WELL), Step(Xid(79), "Xid79"), Step(Reading(), "Xid79")]
    ),
    Story(
        "and is not forgotten",
        [Step(WELL), Step(Xid(79), "Xid79"), Step(Reading(), "Xid79"), Step(Reading(energy_mj=1))],
    ),
    Story(
        "ECC errors stay until the counter is zero again",
        [
            Step(WELL),
            Step(Reading(ecc_uncorrected=1), "EccUncorrectable"),
            Step(Reading(ecc_uncorrected=1), "EccUncorrectable"),
            Step(Reading(ecc_uncorrected=0)),
        ],
    ),
    Story("old ECC errors are not news", [Step(Reading(ecc_uncorrected=7)), Step(Reading(ecc_uncorrected=7))]),
    Story("ECC errors by event", [Step("ecc", "EccUncorrectable"), Step(WELL, "EccUncorrectable")]),
    Story(
        "ECC errors ignored", [Step(WELL), Step("ecc"), Step(Reading(ecc_uncorrected=1))], HealthRules(ecc_marks=False)
    ),
    Story("lost, and back", [Step(Reading(is_lost=True), "GpuLost"), Step(WELL)]),
    Story(
        "its Xid explains more than that it is lost",
        [Step(Xid(79), "Xid79"), Step(Reading(is_lost=True), "Xid79"), Step(WELL)],
    ),
    Story("gone, and back", [Step(Xid(79), "Xid79"), Step("gone", "Xid79"), Step(WELL)]),
    Story("silent is not gone: no reset", [Step(Xid(79), "Xid79"), Step("silent", "Xid79"), Step(WELL, "Xid79")]),
    Story("a call that hangs", [Step(Reading(hung_call="nvmlX"), "DriverHangs"), Step(WELL)]),
    Story(
        "a call that hangs is no reset",
        [Step(Xid(79), "Xid79"), Step(Reading(hung_call="x"), "Xid79"), Step(WELL, "Xid79")],
    ),
    Story(
        "what the driver asks for",
        [Step(Reading(recovery_action=1), "ResetRequired"), Step(Reading(recovery_action=0))],
    ),
    Story(
        "a reset that the driver no longer asks for ends a mark",
        [Step(WELL), Step(Xid(119), "Xid119"), Step(Reading(recovery_action=4), "Xid119"), Step(WELL)],
    ),
    Story(
        "what is no reset does not",
        [Step(WELL), Step(Xid(79), "Xid79"), Step(Reading(recovery_action=3), "Xid79"), Step(WELL, "Xid79")],
    ),
    Story(
        "an action of a newer driver",
        [Step(Reading(recovery_action=99), "ResetRequired"), Step(Xid(79), "Xid79"), Step(WELL, "Xid79")],
    ),
    Story(
        "one that reports nothing, not even its UUID",
        [Step(WELL), Step(Reading(failure="Unknown Error"), "GpuUnreadable"), Step(WELL)],
    ),
    Story(
        "which is no reset",
        [Step(Xid(79), "Xid79"), Step(Reading(failure="Unknown Error"), "Xid79"), Step(WELL, "Xid79")],
    ),
    Story("an administrator's word", [Step(Xid(79), "Xid79"), Step("cleared"), Step(WELL)]),
    Story("which is not the driver's", [Step(Reading(is_lost=True), "GpuLost"), Step("cleared", "GpuLost")]),
    Story(
        "made critical, made harmless",
        [Step(Xid(79)), Step(Xid(31), "Xid31")],
        NvmlSettings(critical_xids=[31], harmless_xids=[79]).health_rules(),
    ),
]


def after(health: GpuHealth, event: Xid | Reading | str, rules: HealthRules) -> GpuHealth:
    match event:
        case Xid(number):
            return h.with_xid(health, number, rules)
        case Reading():
            return h.with_reading(health, event, rules)[0]
        case "ecc":
            return h.with_ecc_event(health, rules)
        case "gone":
            return h.away(health, h.GONE)
        case _:
            return {"silent": h.silent, "cleared": h.cleared}[event](health)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.id)
def test_story(story: Story) -> None:
    health = GpuHealth()
    for number, step in enumerate(story.steps):
        health = after(health, step.event, story.rules)
        assert (health.trouble.reason if health.trouble else "") == step.reason, f"after step {number}: {step.event}"


def test_a_detected_reset_is_reported_once() -> None:
    marked = h.with_xid(h.with_reading(GpuHealth(), WELL, RULES)[0], 79, RULES)
    repaired, how = h.with_reading(marked, Reading(energy_mj=1), RULES)
    assert "energy counter" in how
    assert h.with_reading(repaired, Reading(energy_mj=2), RULES)[1] == ""


def test_a_reason_is_one_word_and_its_message_names_the_remedy() -> None:
    marked = h.with_xid(GpuHealth(), 79, RULES)
    for trouble in (marked.mark, h.LOST, h.GONE, h.ECC, h.SILENT):
        assert trouble is not None
        assert trouble.reason.isalnum()
        assert any(word in trouble.message for word in ("reset it", "gpu clear", "kernel log"))
        assert len(trouble.message) <= 1024


def test_every_xid_is_on_one_side() -> None:
    assert not set(APPLICATION_XIDS) & set(CRITICAL_XIDS)
    assert meaning(79) == "GPU has fallen off the bus"
    assert meaning(9999) == ""


def test_a_storm_is_logged_at_once_and_then_once_a_minute() -> None:
    storms = XidLogLimiter()
    bus_id = [storms.seen("a", 31, 10, now=second * 0.1) for second in range(1000)]
    assert bus_id[0] == 10
    assert [count for count in bus_id if count] == [10, 10 * 600]
    assert storms.seen("b", 31, 1, now=1.0) == 1
