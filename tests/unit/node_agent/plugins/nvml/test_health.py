"""What takes a GPU out of service, and what brings it back."""

from dataclasses import dataclass, field

import msgspec
import pytest
from nodedevice_agent.plugins.nvml import health as h
from nodedevice_agent.plugins.nvml.conditions import Fabric, Trouble
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules, Place, Reading
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

RULES = HealthRules()
WELL = Reading(energy_mj=1000, ecc_uncorrected=0, recovery_action=0)


# of a driver that reports no recovery action: our list alone counts
MUTE = Reading(energy_mj=1000, ecc_uncorrected=0)


def read(action: int | None, *unsettled: int, energy: int | None = None) -> Reading:
    return Reading(energy_mj=energy, ecc_uncorrected=0, recovery_action=action, unsettled=unsettled)


EARLY = Reading(ecc_uncorrected=0, recovery_action=0, unsettled=None)


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


OF_OUR_LIST = [
    Story("a critical Xid stays", [Step(Xid(79), "Xid79"), Step(MUTE, "Xid79")]),
    Story("an application Xid is nothing", [Step(Xid(31)), Step(Xid(43)), Step(MUTE)]),
    Story("a contained error ends its program alone", [Step(Xid(94)), Step(MUTE)]),
    Story("a context switch timeout needs a reset", [Step(Xid(109), "Xid109"), Step(MUTE, "Xid109")]),
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
    Story("gone, and back", [Step(Xid(79), "Xid79"), Step("gone", "Xid79"), Step(MUTE)]),
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
    Story("which is no reset", [Step(Xid(79), "Xid79"), Step(Reading(failure="?"), "Xid79"), Step(MUTE, "Xid79")]),
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
    Story("and so does one of a new reader", [Step(Xid(79), "Xid79"), Step(EARLY, "Xid79"), Step(WELL)]),
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
    Story("an unknown Xid that is harmless", [Step(Xid(9999), "Xid9999"), Step(read(0, 9999), "Xid9999"), Step(WELL)]),
    Story(
        "each Xid has its own second",
        [Step(Xid(48), "Xid48"), Step(Xid(79), "Xid48"), Step(read(0, 79), "Xid79"), Step(WELL)],
    ),
    Story("peer-to-peer traffic has to end", [Step(Xid(79), "Xid79"), Step(read(3)), Step(WELL)]),
    Story(
        "a GPU that is lost has not answered",
        [Step(Xid(79), "Xid79"), Step(Reading(is_lost=True), "Xid79"), Step(Reading(hung_call="x"), "Xid79")],
    ),
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
        "the second answer alone has the action",
        [Step(WELL), Step(Xid(79)), Step(read(0, 79)), Step(read(1)), Step(read(1))],
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
    Story("an action of a newer driver", [Step(read(99), "ResetRequired"), Step(Xid(79), "Xid79"), Step(WELL)]),
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
    Story("ECC errors by event", [Step("ecc", "EccUncorrectable"), Step(WELL, "EccUncorrectable")]),
    Story(
        "ECC errors ignored",
        [Step(Reading(ecc_uncorrected=3)), Step("ecc"), Step(Reading(ecc_uncorrected=4))],
        NvmlSettings(ecc_errors="ignore").health_rules(),
    ),
    Story("contained ones, after which the driver requests nothing", [Step(WELL), Step(Xid(94)), *CONTAINED]),
    Story("the same without an Xid", [Step(WELL), *CONTAINED]),
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
    Story(
        "their event does as well",
        [Step(WELL), Step("ecc", "EccUncorrectable"), Step(WELL, "EccUncorrectable")],
        NvmlSettings(ecc_errors="unhealthy").health_rules(),
    ),
    Story("a row that could not be replaced", [Step(Reading(row_remap_failed=True), "RowRemapFailed"), Step(WELL)]),
    Story("lost, and back", [Step(Reading(is_lost=True), "GpuLost"), Step(WELL)]),
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


def lived(*events: Xid | Reading | str, rules: HealthRules = RULES) -> GpuHealth:
    health = GpuHealth()
    for event in events:
        health = after(health, event, rules)
    return health


def test_the_requested_action_is_shown_with_the_first_xid_that_it_followed() -> None:
    words = "the driver requests a reset of the GPU, after Xid 79 (GPU has fallen off the bus)"
    assert lived(Xid(79), read(1)).trouble == Trouble("ResetRequired", words)
    assert lived(Xid(31), Xid(79), read(1)).trouble == Trouble("ResetRequired", words)
    assert lived(Xid(79), read(1), Xid(48), read(1)).trouble == Trouble("ResetRequired", words)
    assert lived(read(2)).trouble == Trouble("ResetRequired", "the driver requests a reboot of the node")
    again = lived(Xid(79), read(1), WELL, read(1)).trouble
    assert again == Trouble("ResetRequired", "the driver requests a reset of the GPU")


def test_what_is_reported_of_a_gpu_that_is_offered() -> None:
    health = lived(Reading(row_remap_pending=True, recovery_action=3))
    assert health.trouble is None
    assert [note.reason for note in health.notes] == ["RowRemapPending", "PeerToPeerDrain"]
    assert not lived(Reading(row_remap_pending=True), WELL).notes


def test_xids_of_one_second_are_bounded() -> None:
    health = lived(*(Xid(number) for number in range(200, 400)))
    assert len(health.recent) == 100
    assert health.mark == Trouble("Xid300", f"Xid 300; {h._REMEDY}")
    harmless = HealthRules(frozenset(range(1000)))
    full = lived(*(Xid(number) for number in range(200)), rules=harmless)
    assert (len(full.recent), full.mark) == (100, None)


# -- MIG instances -----------------------------------------------------------------------------------------------------------


def of_instance(health: GpuHealth, *place: int) -> str:
    trouble = health.trouble_of_instance(*place)
    return trouble.reason if trouble else ""


def test_an_xid_of_a_compute_instance_is_its_alone() -> None:
    health = h.with_xid(GpuHealth(), 48, RULES, Place(7, 1))
    assert health.trouble is None
    assert [of_instance(health, *place) for place in ((7, 1), (7, 0), (8, 1))] == ["Xid48", "", ""]
    assert of_instance(h.with_reading(health, read(0, 48), RULES)[0], 7, 1) == "Xid48"
    assert of_instance(h.with_reading(health, WELL, RULES)[0], 7, 1) == ""


def test_an_xid_of_a_gpu_instance_is_that_of_all_its_compute_instances() -> None:
    health = h.with_xid(GpuHealth(), 48, RULES, Place(7))
    assert [of_instance(health, *place) for place in ((7, 0), (7, 1), (8, 0))] == ["Xid48", "Xid48", ""]


def test_without_a_word_of_the_driver_the_instance_is_marked_until_a_reset() -> None:
    health = h.with_xid(h.with_reading(GpuHealth(), MUTE, RULES)[0], 48, RULES, Place(7, 0))
    health = h.with_reading(health, MUTE, RULES)[0]
    assert (health.trouble, of_instance(health, 7, 0), of_instance(health, 7, 1)) == (None, "Xid48", "")
    # of each place the first one
    again = h.with_reading(h.with_xid(health, 79, RULES, Place(7, 0)), MUTE, RULES)[0]
    assert of_instance(again, 7, 0) == "Xid48"
    other = h.with_reading(h.with_xid(health, 79, RULES, Place(7, 1)), MUTE, RULES)[0]
    assert (of_instance(other, 7, 0), of_instance(other, 7, 1)) == ("Xid48", "Xid79")
    reset, how = h.with_reading(other, Reading(energy_mj=1), RULES)
    assert (of_instance(reset, 7, 0), how) == ("", "its energy counter restarted")
    assert of_instance(h.cleared(other), 7, 1) == ""


def test_a_reset_that_the_driver_wants_is_the_whole_gpus() -> None:
    health = h.with_reading(h.with_xid(GpuHealth(), 95, RULES, Place(7, 0)), read(1), RULES)[0]
    assert health.trouble
    assert health.trouble.message == "the driver requests a reset of the GPU, after Xid 95 (Uncontained memory error)"


def test_the_mark_of_an_instance_ends_with_it() -> None:
    health = h.with_xid(GpuHealth(), 31, HealthRules(critical_by_setting=frozenset({31})), Place(7, 0))
    assert h.with_instances(health, {(7, 0), (8, 0)}) is health
    assert of_instance(h.with_instances(health, {(7, 1)}), 7, 0) == ""
    assert of_instance(h.with_instances(health, set()), 7, 0) == ""


# -- the energy counter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "not_supported", "seconds"),
    [
        ([], (), None),
        ([], ("ecc",), None),
        ([], ("recoveryAction",), 60),
        ([], ("ecc", "recoveryAction"), 60),
        ([Reading(ecc_uncorrected=4)], ("recoveryAction",), None),
        ([], ("ecc", "energy", "events", "recoveryAction"), 60),
        ([Reading(is_lost=True)], ("recoveryAction",), 0),
        ([Reading(is_lost=True)], (), None),
        ([Xid(31)], (), None),
        ([Xid(79)], (), 0),
        ([Xid(79), MUTE], (), 0),
        ([Xid(79), WELL], (), None),
        ([Xid(79), read(1)], (), None),
        ([read(1), "ecc"], (), None),
        (["ecc", read(3)], (), 0),
        ([Reading(ecc_uncorrected=4)], (), None),
        (["ecc"], (), 0),
    ],
)
def test_the_energy_counter_is_read_where_nothing_else_shows_a_reset(
    events: list[Xid | Reading | str], not_supported: tuple[str, ...], seconds: float | None
) -> None:
    assert lived(*events).energy_seconds(not_supported) == seconds


def test_it_is_read_for_the_mark_of_an_instance() -> None:
    health = h.with_xid(GpuHealth(), 31, HealthRules(critical_by_setting=frozenset({31})), Place(7, 0))
    assert health.energy_seconds(()) == 0


def test_a_detected_reset_is_reported_once() -> None:
    marked = lived(MUTE, Xid(79), MUTE)
    repaired, how = h.with_reading(marked, Reading(energy_mj=1), RULES)
    assert "energy counter" in how
    assert h.with_reading(repaired, Reading(energy_mj=2), RULES)[1] == ""


def test_a_reason_is_one_word_and_its_message_names_the_remedy() -> None:
    for trouble in (lived(Xid(79)).suspicion, h.LOST, h.GONE, h.ECC, h.ECC_BEFORE, h.SILENT):
        assert trouble is not None
        assert trouble.reason.isalnum()
        assert any(word in trouble.message for word in ("reset it", "gpu clear", "kernel log"))
        assert len(trouble.message) <= 1024


@pytest.mark.parametrize(
    ("reading", "trouble"),
    [
        (
            Reading(hung_call="nvmlX"),
            Trouble("DriverHangs", "nvmlX hangs for this GPU; see the kernel log"),
        ),
        (
            Reading(failure="Unknown Error"),
            Trouble("GpuUnreadable", "the UUID of the GPU can no longer be read (Unknown Error); see the kernel log"),
        ),
        (Reading(is_lost=True), h.LOST),
    ],
)
def test_a_reading_without_counters_shows_no_reset(reading: Reading, trouble: Trouble) -> None:
    before = lived(MUTE, "ecc")
    health, how = h.with_reading(before, reading, RULES)
    assert (health.passing, how, health.read) == (trouble, "", before.read)


def test_what_shows_a_reset() -> None:
    words = {
        "its energy counter restarted": (MUTE, Reading(energy_mj=1)),
        "its volatile ECC counter restarted": (Reading(ecc_uncorrected=2), Reading(ecc_uncorrected=1)),
        "the driver no longer requests draining the GPU, then a reset": (read(4), read(0)),
        "it was unreachable and is back": (Reading(is_lost=True), Reading()),
        "": (
            Reading(energy_mj=1, ecc_uncorrected=0, recovery_action=3),
            Reading(energy_mj=1, ecc_uncorrected=0, recovery_action=0),
        ),
    }
    for how, (before, after_it) in words.items():
        assert h.with_reading(lived(before), after_it, RULES)[1] == how
