"""All GPUs of a node: which are listed, forgotten and remembered."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from nodedevice_agent.plugins.nvml.driver_troubles import Reading, Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.health import HealthRules, Place
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.node_gpus import Change, Fleet
from nodedevice_agent.plugins.nvml.reader.messages import Found

A, B, C = (Gpu(f"GPU-{name}", "model", pci_bus_id=f"0000:0{place}:00.0") for place, name in enumerate("abc"))


def inventory(*gpus: Gpu, lost: int = 0, unnamed: Iterable[str] = ()) -> Found:
    return Found("570.1", list(gpus), lost=lost, unnamed=list(unnamed))


def fleet(*gpus: Gpu) -> Fleet:
    made = Fleet(HealthRules())
    made.found(inventory(*gpus))
    return made


def restarted(known: Fleet, *gpus: Gpu) -> Fleet:
    """With what was remembered. gpus: found again."""
    again = Fleet(HealthRules(), known.remembered())
    if gpus:
        again.found(inventory(*gpus))
    return again


def reason(trouble: Trouble | None) -> str:
    return trouble.reason if trouble else ""


def reasons(found: Fleet) -> dict[str, str]:
    """Of those that have one, by the last letter of the UUID."""
    return {uuid[-1]: its for uuid in found.gpus if (its := reason(found.trouble_of(uuid)))}


def test_a_gpu_that_is_no_longer_found_stays_listed_until_it_is_back_or_cleared() -> None:
    known = fleet(A, B)
    (change,) = known.found(inventory(A))
    assert (change.uuid, change.trouble and change.trouble.reason, known.is_whole) == (B.uuid, "GpuGone", False)
    known.found(inventory(A, B))
    known.read({B.uuid: Reading()})
    assert (reasons(known), known.is_whole) == ({}, True)
    known.found(inventory(A))
    known.cleared(B.uuid)
    assert ([*known.gpus], known.is_whole) == ([A.uuid], True)


def test_a_missing_gpu_is_forgotten_when_another_uuid_has_its_bus_id() -> None:
    known = fleet(A, B)
    known.xid(B.uuid, 79)
    changes = known.found(inventory(A, Gpu("GPU-new", pci_bus_id=B.pci_bus_id)))
    assert changes == [Change(B.uuid, None, "another UUID has its bus ID")]
    assert reasons(known) == {}


def test_which_of_the_missing_ones_is_lost() -> None:
    known = fleet(A, B, C)
    known.read({C.uuid: Reading(is_lost=True)})
    known.found(inventory(A, lost=1))
    assert reasons(known) == {"b": "GpuGone", "c": "GpuLost"}
    assert known.trouble is None


def test_an_unidentified_gpu_may_be_the_missing_one() -> None:
    known = fleet(A, B)
    known.xid(B.uuid, 48)
    known.found(inventory(A, unnamed=["GPU 1 does not answer"]))
    known.found(inventory(A, B))
    known.read({B.uuid: Reading()})
    assert reasons(known) == {"b": "Xid48"}


def test_no_gpu_is_healthy_while_the_driver_is_not_read() -> None:
    known = fleet(A, B)
    known.xid(B.uuid, 48)
    assert known.unread(Trouble("DriverMismatch", "reboot"))
    assert not known.unread(Trouble("DriverMismatch", "reboot"))
    assert reasons(known) == {"a": "DriverMismatch", "b": "Xid48"}
    known.unread(None)
    assert reasons(known) == {"b": "Xid48"}


def test_remembers_marks_and_missing_gpus() -> None:
    known = fleet(A, B, C)
    known.xid(A.uuid, 48)
    known.found(inventory(A, B))
    again = restarted(known)
    assert reasons(again) == {"a": "Xid48", "c": "GpuGone"}
    assert again.remembered() == known.remembered()
    # what was away and is there after the restart was reset as well
    again.found(inventory(A, B, C))
    again.read({C.uuid: Reading()})
    assert reasons(again) == {"a": "Xid48"}


def test_ecc_errors_while_no_agent_ran_are_detected() -> None:
    known = fleet(A, B)
    known.read({gpu.uuid: Reading(ecc_uncorrected=2) for gpu in (A, B)})
    again = restarted(known, A, B)
    again.cleared(A.uuid)
    again.cleared(B.uuid)
    again.read({A.uuid: Reading(ecc_uncorrected=5), B.uuid: Reading(ecc_uncorrected=2)})
    assert reasons(again) == {"a": "EccUncorrectable"}


def test_a_property_that_was_reported_once_is_kept() -> None:
    full = Gpu("GPU-a", "model", 1 << 30, "0000:00:00.0", 1, 3, ("ecc",))
    known = fleet(full)
    known.found(inventory(Gpu("GPU-a")))
    assert known.gpus["GPU-a"] == full
    other = Gpu("GPU-a", "another", 2 << 30, "0000:01:00.0", 0, 0, ("energy",))
    known.found(inventory(other))
    assert known.gpus["GPU-a"] == other


def test_instances_come_and_go_and_are_remembered() -> None:
    known = fleet(A, B)
    one = MigInstance("MIG-1", "1g.10gb", 1, 0, 9728)
    ((before, changed),) = known.described([replace(A, instances=(one,)), B, Gpu("GPU-unknown", instances=())])
    assert before == A
    assert changed.instances == (one,)
    assert known.devices()["MIG-1"] == GpuDevice(changed, one)
    assert restarted(known).gpus["GPU-a"].instances == (one,)
    # an inventory without instances: MIG mode has ended
    known.found(inventory(A, B))
    assert known.gpus["GPU-a"].instances is None


DIVIDED = tuple(MigInstance(f"MIG-{number}", "1g.10gb", number, 0, 9728) for number in (1, 2))


def test_an_xid_of_an_instance_is_a_change_of_that_instance() -> None:
    known = fleet(A)
    known.described([replace(A, instances=DIVIDED)])
    (change,) = known.xid(A.uuid, 48, Place(1, 0))
    assert (change.uuid, reason(change.trouble)) == ("MIG-1", "Xid48")
    assert [reason(known.trouble_of_instance(A.uuid, each)) for each in DIVIDED] == ["Xid48", ""]
    assert known.trouble_of(A.uuid) is None
    (change,) = known.read({A.uuid: Reading(recovery_action=0)})
    assert (change.uuid, change.trouble) == ("MIG-1", None)


def test_the_mark_of_an_instance_ends_with_it_and_is_remembered_until_then() -> None:
    known = fleet(A)
    known.described([replace(A, instances=DIVIDED)])
    known.xid(A.uuid, 48, Place(1, 0))
    known.read({A.uuid: Reading()})
    again = restarted(known)
    assert reason(again.trouble_of_instance(A.uuid, DIVIDED[0])) == "Xid48"
    again.described([replace(A, instances=DIVIDED[1:])])
    again.described([replace(A, instances=DIVIDED)])
    assert reason(again.trouble_of_instance(A.uuid, DIVIDED[0])) == ""


def test_what_was_read_at_a_mark_shows_a_reset_after_a_restart_too() -> None:
    known = fleet(A)
    known.read({A.uuid: Reading(energy_mj=100, ecc_uncorrected=0)})
    known.ecc(A.uuid)
    again = restarted(restarted(known), A)
    (change,) = again.read({A.uuid: Reading(energy_mj=50)})
    assert (change.trouble, change.how) == (None, "its energy counter restarted")


def test_a_number_that_another_gpu_has_by_now_is_forgotten() -> None:
    known = fleet(replace(A, minor=0), replace(B, minor=1))
    known.found(inventory(replace(B, minor=0)))
    assert {uuid: gpu.minor for uuid, gpu in known.gpus.items()} == {A.uuid: None, B.uuid: 0}


def test_a_suspicion_and_an_excuse_survive_a_restart() -> None:
    rules = HealthRules(harmless_xids=frozenset({79}), harmless_by_setting=frozenset({79}))
    known = Fleet(rules)
    known.found(inventory(A, B))
    known.xid(A.uuid, 48)
    known.xid(B.uuid, 79)
    known.read({B.uuid: Reading(recovery_action=1)})
    again = Fleet(rules, known.remembered())
    assert reasons(again) == {"a": "Xid48"}
    again.found(inventory(A, B))
    again.read({A.uuid: Reading(recovery_action=0), B.uuid: Reading(recovery_action=1)})
    assert reasons(again) == {}


@pytest.mark.parametrize(
    ("reading", "is_whole"),
    [
        (Reading(), True),
        (Reading(is_lost=True), False),
        (Reading(failure="not text"), False),
        (Reading(recovery_action=1), True),
        (Reading(hung_call="nvmlDeviceGetUUID"), True),
    ],
)
def test_a_new_session_may_reach_gpus_that_do_not_answer(reading: Reading, is_whole: bool) -> None:
    known = fleet(A)
    known.read({A.uuid: reading})
    assert known.is_whole is is_whole


def test_an_xid_of_a_gpu_that_is_not_in_mig_mode_is_the_gpus() -> None:
    known = fleet(A)
    (change,) = known.xid(A.uuid, 48, Place(1, 0))
    assert (change.uuid, reason(known.trouble_of(A.uuid))) == (A.uuid, "Xid48")


def test_a_lost_gpu_that_was_never_known() -> None:
    known = Fleet(HealthRules())
    known.found(inventory(A, lost=1))
    assert (reason(known.trouble), known.is_whole) == ("GpuUnreadable", False)
