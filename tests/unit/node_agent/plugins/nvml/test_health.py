"""What the health of a GPU is made of: its messages and bounds, its MIG instances, and what shows a reset."""

import pytest
from nodedevice_agent.plugins.nvml import health as h
from nodedevice_agent.plugins.nvml.driver_troubles import Reading, Trouble
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules, Place
from nodedevice_agent.plugins.nvml.mig import MigInstance

from tests.unit.node_agent.plugins.nvml.health_events import MUTE, RULES, WELL, Xid, lived, read


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


def instance(gpu_instance: int, compute_instance: int) -> MigInstance:
    return MigInstance("MIG-a", "1g.10gb", gpu_instance, compute_instance, 9728)


def of_instance(health: GpuHealth, gpu_instance: int, compute_instance: int) -> str:
    trouble = health.trouble_of_instance(instance(gpu_instance, compute_instance))
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
    assert of_instance(h.with_reading(h.with_xid(health, 79, RULES, Place(7, 0)), MUTE, RULES)[0], 7, 0) == "Xid48"
    other = h.with_reading(h.with_xid(health, 79, RULES, Place(7, 1)), MUTE, RULES)[0]
    assert (of_instance(other, 7, 0), of_instance(other, 7, 1)) == ("Xid48", "Xid79")
    reset, how = h.with_reading(other, Reading(energy_mj=1), RULES)
    assert (of_instance(reset, 7, 0), how) == ("", "its energy counter restarted")
    assert of_instance(h.cleared(other), 7, 1) == ""


def test_the_mark_of_an_instance_ends_with_it() -> None:
    health = h.with_xid(GpuHealth(), 31, HealthRules(critical_by_setting=frozenset({31})), Place(7, 0))
    assert h.with_instances(health, [instance(7, 0), instance(8, 0)]) is health
    assert of_instance(h.with_instances(health, [instance(7, 1)]), 7, 0) == ""
    assert of_instance(h.with_instances(health, []), 7, 0) == ""


@pytest.mark.parametrize(
    ("events", "not_supported", "seconds"),
    [
        ([], (), None),
        ([], ("recoveryAction",), 60),
        ([Reading(ecc_uncorrected=4)], ("recoveryAction",), None),
        ([Reading(is_lost=True)], ("recoveryAction",), 0),
        ([Xid(31)], (), None),
        ([Xid(79)], (), 0),
        ([Xid(79), WELL], (), None),
        ([read(1), "ecc"], (), None),
        ([Reading(ecc_uncorrected=4)], (), None),
        (["ecc"], (), 0),
    ],
)
def test_the_energy_counter_is_read_where_nothing_else_shows_a_reset(
    events: list[Xid | Reading | str], not_supported: tuple[str, ...], seconds: float | None
) -> None:
    assert lived(*events).energy_seconds(not_supported) == seconds


def test_what_shows_a_reset() -> None:
    words = {
        "its energy counter restarted": (MUTE, Reading(energy_mj=1)),
        "its volatile ECC counter restarted": (Reading(ecc_uncorrected=2), Reading(ecc_uncorrected=1)),
        "the driver no longer requests draining the GPU, then a reset": (read(4), read(0)),
        "it was unreachable and is back": (Reading(is_lost=True), Reading()),
        "": (read(3, energy=1), read(0, energy=1)),
    }
    for how, (before, after_it) in words.items():
        assert h.with_reading(lived(before), after_it, RULES)[1] == how


INSTANCE = Place(1, 0)
# marks that come at once, and by a suspicion
FIRST = ["ecc", Xid(48), Xid(48, INSTANCE), Xid(31), Xid(31, INSTANCE)]
AT_ONCE = HealthRules(critical_by_setting=frozenset({31}))


@pytest.mark.parametrize("first", FIRST, ids=str)
@pytest.mark.parametrize("then", ["ecc", Xid(79), Xid(31, Place(2, 0))], ids=str)
def test_a_reset_shows_by_what_was_read_before_the_first_mark(first: Xid | str, then: Xid | str) -> None:
    """However many follow."""
    health = lived(Reading(energy_mj=10), first, Reading(energy_mj=20), then, Reading(energy_mj=30), rules=AT_ONCE)
    assert health.marked_at.energy_mj == 10
    assert h.cleared(health) == GpuHealth(read=Reading(energy_mj=30))


def test_xids_of_one_second_are_bounded() -> None:
    health = lived(*(Xid(number) for number in range(200, 400)))
    assert (len(health.recent), health.mark and health.mark.reason) == (100, "Xid300")
    full = lived(*(Xid(number) for number in range(200)), rules=HealthRules(frozenset(range(1000))))
    assert (len(full.recent), full.mark) == (100, None)
