"""What takes a GPU out of service, and what brings it back: event by event, with the reason that is shown after each."""

from dataclasses import dataclass, field

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Fabric, Reading
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

from tests.unit.node_agent.plugins.nvml.health_events import MUTE, WELL, Xid, after, read

EARLY = Reading(ecc_uncorrected=0, recovery_action=0, unsettled=None)


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


OF_OUR_LIST = [
    Story("a critical Xid stays", [Step(Xid(79), "Xid79"), Step(MUTE, "Xid79")]),
    Story("an application Xid is nothing", [Step(Xid(31)), Step(Xid(43)), Step(MUTE)]),
    Story("an unknown Xid is critical", [Step(Xid(9999), "Xid9999"), Step(MUTE, "Xid9999")]),
    Story("the first critical Xid is the cause", [Step(Xid(48), "Xid48"), Step(Xid(79), "Xid48"), Step(MUTE, "Xid48")]),
    Story("the energy counter starts again", [Step(MUTE), Step(Xid(79), "Xid79"), Step(Reading(energy_mj=10))]),
    Story(
        "the energy counter goes on",
        [
            Step(MUTE),
            Step(Xid(79), "Xid79"),
            Step(Reading(energy_mj=1000), "Xid79"),
            Step(Reading(energy_mj=1001), "Xid79"),
        ],
    ),
    Story(
        "a counter that is missing once shows nothing", [Step(MUTE), Step(Xid(79), "Xid79"), Step(Reading(), "Xid79")]
    ),
    Story(
        "and is not forgotten",
        [Step(MUTE), Step(Xid(79), "Xid79"), Step(Reading(), "Xid79"), Step(Reading(energy_mj=1))],
    ),
    Story(
        "an energy counter that is read only once the GPU is marked",
        [
            Step(Xid(79), "Xid79"),
            Step(Reading(), "Xid79"),
            Step(Reading(energy_mj=5), "Xid79"),
            Step(Reading(energy_mj=4)),
        ],
    ),
    Story(
        "its Xid explains more than that it is lost",
        [Step(Xid(79), "Xid79"), Step(Reading(is_lost=True), "Xid79"), Step(MUTE)],
    ),
    Story("silent is not gone: no reset", [Step(Xid(79), "Xid79"), Step("silent", "Xid79"), Step(MUTE, "Xid79")]),
    Story(
        "a call that hangs is no reset",
        [Step(Xid(79), "Xid79"), Step(Reading(hung_call="x"), "Xid79"), Step(MUTE, "Xid79")],
    ),
    Story(
        "an answer that is missing once is no word of the driver",
        [
            Step(WELL),
            Step(Xid(79), "Xid79"),
            Step(MUTE, "Xid79"),
            Step(read(1), "Xid79"),
            Step(read(3), "Xid79"),
            Step(WELL, "Xid79"),
        ],
    ),
    Story("an administrator's word", [Step(Xid(79), "Xid79"), Step(MUTE, "Xid79"), Step("cleared"), Step(MUTE)]),
    Story(
        "made critical, made harmless",
        [Step(Xid(79)), Step(Xid(31), "Xid31"), Step(MUTE, "Xid31")],
        NvmlSettings(critical_xids=[31], harmless_xids=[79]).health_rules(),
    ),
]
OF_THE_DRIVER = [
    Story("it needs nothing", [Step(WELL), Step(Xid(79), "Xid79"), Step(WELL)]),
    Story("the first answer may come too early", [Step(Xid(79), "Xid79"), Step(read(0, 79), "Xid79"), Step(WELL)]),
    Story(
        "the second answer counts",
        [Step(Xid(79), "Xid79"), Step(read(0, 79), "Xid79"), Step(read(1), "ResetRequired"), Step(WELL)],
    ),
    Story(
        "an early one that asks for something waits", [Step(Xid(94)), Step(read(1, 94)), Step(read(1), "ResetRequired")]
    ),
    Story(
        "what it asked for before the Xid does not",
        [Step(read(1), "ResetRequired"), Step(Xid(94), "ResetRequired"), Step(read(1, 94), "ResetRequired")],
    ),
    Story(
        "one second answer is enough",
        [
            Step(Xid(94)),
            Step(Xid(31)),
            Step(read(1, 31), "ResetRequired"),
            Step(read(0, 31)),
            Step(read(1), "ResetRequired"),
        ],
    ),
    Story(
        "a harmless Xid after which it asks for a reset", [Step(Xid(31)), Step(WELL), Step(read(4), "ResetRequired")]
    ),
    Story(
        "each Xid has its own second",
        [Step(Xid(48), "Xid48"), Step(Xid(79), "Xid48"), Step(read(0, 79), "Xid79"), Step(WELL)],
    ),
    Story("peer-to-peer traffic has to end", [Step(Xid(79), "Xid79"), Step(read(3)), Step(WELL)]),
    Story("an administrator does not wait for it", [Step(Xid(79), "Xid79"), Step("cleared"), Step(read(0, 79))]),
    Story(
        "nor does a setting that it is critical",
        [Step(Xid(31), "Xid31"), Step(WELL, "Xid31"), Step(WELL, "Xid31"), Step("cleared")],
        NvmlSettings(critical_xids=[31]).health_rules(),
    ),
    Story(
        "nor one that it is harmless, whenever the driver asks for a reset",
        [Step(WELL), Step(Xid(79)), Step(read(1, 79)), Step(read(1)), Step(read(1)), Step(WELL)],
        NvmlSettings(harmless_xids=[79]).health_rules(),
    ),
    Story(
        "another action is not excused",
        [Step(Xid(79)), Step(read(1)), Step(read(2), "ResetRequired"), Step(read(1), "ResetRequired")],
        NvmlSettings(harmless_xids=[79]).health_rules(),
    ),
    Story(
        "nor the same one after another Xid",
        [Step(Xid(79)), Step(read(1)), Step(Xid(48), "Xid48"), Step(read(1), "ResetRequired")],
        NvmlSettings(harmless_xids=[79]).health_rules(),
    ),
    Story(
        "nor one that two Xids may have caused",
        [Step(Xid(79)), Step(Xid(48), "Xid48"), Step(read(1), "ResetRequired")],
        NvmlSettings(harmless_xids=[79]).health_rules(),
    ),
    Story(
        "nor one from before the Xid",
        [Step(read(1), "ResetRequired"), Step(Xid(79), "ResetRequired"), Step(read(1), "ResetRequired")],
        NvmlSettings(harmless_xids=[79]).health_rules(),
    ),
    Story("what the driver asks for", [Step(read(1), "ResetRequired"), Step(WELL)]),
    Story(
        "a reset that it no longer asks for ends a mark",
        [Step("ecc", "EccUncorrectable"), Step(read(4), "EccUncorrectable"), Step(WELL)],
    ),
    Story(
        "the end of what is no reset does not",
        [
            Step("ecc", "EccUncorrectable"),
            Step(read(3), "EccUncorrectable"),
            Step(WELL, "EccUncorrectable"),
        ],
    ),
    Story(
        "what it asks for is no matter by a setting",
        [Step(read(1)), Step(read(3), "PeerToPeerDrain")],
        msgspec.convert(
            {"health": {"resetRequired": "ignore", "peerToPeerDrain": "unhealthy"}}, NvmlSettings
        ).health_rules(),
    ),
]


def counted(ecc_errors: int, action: int | None) -> Reading:
    return Reading(ecc_uncorrected=ecc_errors, recovery_action=action)


CONTAINED = [Step(counted(1, 0)), Step("ecc"), Step(counted(2, 0)), Step(counted(2, 0)), Step(WELL)]
LATER = [Step(counted(2, None), "EccUncorrectable")]
OF_MEMORY = [
    Story(
        "ECC errors stay until the counter is zero again",
        [
            Step(WELL),
            Step(Reading(ecc_uncorrected=1), "EccUncorrectable"),
            Step(Reading(ecc_uncorrected=1), "EccUncorrectable"),
            Step(Reading(ecc_uncorrected=0)),
        ],
    ),
    Story(
        "ECC errors from before the start",
        [
            Step(Reading(ecc_uncorrected=1), "EccBeforeStart"),
            Step(Reading(ecc_uncorrected=1), "EccBeforeStart"),
            Step("cleared"),
            Step(Reading(ecc_uncorrected=1)),
            Step(Reading(ecc_uncorrected=2), "EccUncorrectable"),
            Step(Reading(ecc_uncorrected=0)),
        ],
    ),
    Story(
        "ECC errors ignored",
        [Step(Reading(ecc_uncorrected=3)), Step("ecc"), Step(Reading(ecc_uncorrected=4))],
        NvmlSettings(ecc_errors="ignore").health_rules(),
    ),
    Story("contained ones, after which the driver requests nothing", [Step(WELL), Step(Xid(94)), *CONTAINED]),
    Story("while no agent ran, too", [Step(counted(2, 0), "EccBeforeStart"), Step("cleared"), Step(counted(3, 0))]),
    Story(
        "not contained ones, after which it requests a reset",
        [Step(WELL), Step("ecc"), Step(counted(1, 0)), Step(counted(1, 1), "ResetRequired"), Step(WELL)],
    ),
    Story("an end of peer-to-peer traffic is its word as well", [Step(WELL), Step("ecc"), Step(counted(1, 3))]),
    Story(
        "a driver that does not answer has no word",
        [Step(WELL), Step(counted(1, None), "EccUncorrectable"), Step(counted(1, 0), "EccUncorrectable"), Step(WELL)],
    ),
    Story(
        "one that its Xid calls contained, without a word of the driver",
        [Step(MUTE), Step(Xid(94)), Step("ecc"), Step(counted(1, None)), Step(counted(1, None)), *LATER],
    ),
    Story(
        "the Xid that reported it is the cause",
        [Step(MUTE), Step(Xid(48), "Xid48"), Step(counted(1, None), "Xid48"), Step(counted(1, None), "Xid48")],
    ),
    Story(
        "and is harmless by a setting, whatever it counts",
        [Step(MUTE), Step(Xid(48)), Step(counted(1, None)), Step(counted(1, None)), *LATER],
        NvmlSettings(harmless_xids=[48]).health_rules(),
    ),
    Story(
        "an Xid of something else explains none",
        [Step(MUTE), Step(Xid(31)), Step(counted(1, None), "EccUncorrectable")],
    ),
    Story(
        "ECC errors count by a setting, whatever the driver requests",
        [Step(WELL), Step(counted(1, 0), "EccUncorrectable"), Step(counted(1, 0), "EccUncorrectable"), Step(WELL)],
        NvmlSettings(ecc_errors="unhealthy").health_rules(),
    ),
    Story("a call that hangs", [Step(Reading(hung_call="nvmlX"), "DriverHangs"), Step(WELL)]),
    Story(
        "one that reports nothing, not even its UUID",
        [Step(WELL), Step(Reading(failure="Unknown Error"), "GpuUnreadable"), Step(WELL)],
    ),
    Story(
        "an administrator's word is not the driver's",
        [Step(Reading(is_lost=True), "GpuLost"), Step("cleared", "GpuLost")],
    ),
    Story(
        "a fabric that comes late",
        [Step(Reading(fabric=Fabric(2)), "FabricNotReady"), Step(Reading(fabric=Fabric(3)))],
    ),
]
STORIES = [*OF_OUR_LIST, *OF_THE_DRIVER, *OF_MEMORY]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.id)
def test_story(story: Story) -> None:
    health = GpuHealth()
    for number, step in enumerate(story.steps):
        health = after(health, step.event, story.rules)
        assert (health.trouble.reason if health.trouble else "") == step.reason, f"after step {number}: {step.event}"
