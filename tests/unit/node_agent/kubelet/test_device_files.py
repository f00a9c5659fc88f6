"""The device files of answers, of which the kubelet keeps the paths and not the numbers that they had."""

from typing import Any

from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import snapshot

from tests.fakes.settled import attributing
from tests.unit.node_agent.devicemanager.scenario import GPU, held_by, pod

EDITS = ContainerEdits(devices=(DeviceFile("/dev/tty0", "/dev/tty0", "rw"),))


def message(found: Any, *entries: Allocation) -> None:
    """The kubelet is read."""
    found.attribution.is_outdated = False
    found.attribution.read(KubeletState(entries, ()))


def lists(found: Any, number: int, count: int = 1) -> None:
    """Devices of one file each, which has this number, also in its name."""
    same: dict[str, Any] = {"identity": (f"c188:{number}",), "files": ((f"/dev/tty{number}", f"c188:{number}"),)}
    found.listed(GPU, 1, accept(Device(f"d{n}", **same) for n in range(count)), 0.0)


def built_in(count: int = 1, checkpoint: Checkpoint | None = None, **options: Any) -> Any:
    found = attributing(0.0, checkpoint, **options)
    found.connected(GPU, 1, PluginOptions(scope="built-in x"), 0.0)
    lists(found, 0, count)
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    return found


def answers(found: Any, device_id: str) -> None:
    found.attribution.answered(GPU, [device_id, device_id], AllocateResponse(b"", EDITS))


def problem(found: Any, device_id: str) -> Any:
    return found.attribution.start_problem(GPU, [device_id, device_id], lambda allocation: allocation)


def test_they_are_recorded_with_the_answer_over_a_restart() -> None:
    found = built_in()
    answers(found, "d0")
    message(found, held_by("one", "d0"))
    after = built_in(checkpoint=found.checkpoint())
    message(after, held_by("one", "d0"))
    for each in (found, after):
        assert [a.files for a in each.book] == [(("/dev/tty0", "c188:0"),)]
        assert problem(each, "d0") == ""
        lists(each, 1)
        assert problem(each, "d0") == f"the device files of {GPU} are other devices' by now: delete the pod"


def test_before_the_kubelet_has_written_the_answer() -> None:
    found = built_in()
    answers(found, "d0")
    lists(found, 1)
    assert "are other devices' by now" in problem(found, "d0")
    answers(found, "d0")
    found.listed(GPU, 1, accept([]), 0.0)
    assert problem(found, "d0") == f"device d0 of {GPU} is not there: connect it again, or delete the pod"


def test_before_the_allocations_were_recovered_from_the_api_which_has_none() -> None:
    found = built_in(is_recovering=True)
    answers(found, "d0")
    found.recovered(Checkpoint((held_by("one", "d0", response=None),)), 0.0)
    lists(found, 1)
    assert "are other devices' by now" in problem(found, "d0")


def test_of_an_answer_that_nobody_recorded_its_own_paths_count() -> None:
    """One of an older agent."""
    found = built_in()

    def decoded(allocation: Allocation) -> Allocation:
        return allocation if allocation.response is None else replace(allocation, edits=EDITS)

    message(found, held_by("one", "d0"))
    for number, is_right in ((0, True), (1, False)):
        lists(found, number)
        assert (found.attribution.start_problem(GPU, ["d0"], decoded) == "") is is_right


def test_when_its_pod_has_ended_a_device_goes_by_its_own_id() -> None:
    found = built_in()
    message(found, held_by("one", "d0"))
    renamed = Device("new", identity=("c188:0",), aliases=("d0",), is_shared=True)
    found.listed(GPU, 1, accept([renamed]), 0.0)
    assert [device.id for device in snapshot(found, GPU).devices] == ["d0"]
    found.pod_events.gone("one", 0.0)
    assert [device.id for device in snapshot(found, GPU).devices] == ["new"]
