"""MIG in the fake NVML: mode, profiles, instances that come and go, and what happens to handles of those that are gone."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from hack.fake_nvml.library import FakeNvml
from tests.nvml.answers import INVALID, NOT_SUPPORTED, Start
from tests.nvml.nvml_process import NvmlProcess

NOT_FOUND = pynvml.NVML_ERROR_NOT_FOUND
CHANGED = pynvml.nvmlEventMigConfigChange
MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> FakeNvml:
    """Three A100: two in MIG mode, with three and seven instances."""
    return FakeNvml(tmp_path, "mig-a100")


@pytest.fixture
def mig(machine: FakeNvml, start: Start) -> NvmlProcess:
    """A process that sees it."""
    return start(machine)


def device(nvml: NvmlProcess, gpu: dict[str, str], index: int) -> dict[str, str]:
    """A handle of the MIG device of this index."""
    name = f"{gpu['kept']}-{index}"
    nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, keep=name)
    return {"kept": name}


def indexes(nvml: NvmlProcess, gpu: dict[str, str]) -> list[int]:
    """The indexes at which there are MIG devices."""
    answers = {i: nvml.error("nvmlDeviceGetMigDeviceHandleByIndex", gpu, i) for i in range(7)}
    assert set(answers.values()) <= {0, NOT_FOUND}
    return [index for index, error in answers.items() if error == 0]


def names(nvml: NvmlProcess, gpu: dict[str, str]) -> list[str]:
    """The kinds of a GPU's MIG devices, in their order."""
    found = [nvml.call("nvmlDeviceGetName", device(nvml, gpu, index)) for index in indexes(nvml, gpu)]
    return [name.partition(" MIG ")[2] for name in found]


def profile(nvml: NvmlProcess, gpu: dict[str, str], index: int, version: int = 2) -> dict[str, Any]:
    found = nvml.call("nvmlDeviceGetGpuInstanceProfileInfo", gpu, index, version)
    assert isinstance(found, dict)
    return found


def test_instances_that_a_machine_has(mig: NvmlProcess) -> None:
    cut, small, whole = mig.open()
    assert [mig.call("nvmlDeviceGetMigMode", gpu)[0] for gpu in (cut, small, whole)] == [1, 1, 0]
    assert [mig.call("nvmlDeviceGetMaxMigDeviceCount", gpu) for gpu in (cut, small, whole)] == [7, 7, 0]
    assert names(mig, cut) == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert names(mig, small) == ["1g.10gb"] * 7
    assert mig.error("nvmlDeviceGetMigDeviceHandleByIndex", whole, 0) == pynvml.NVML_ERROR_NOT_FOUND
    assert mig.error("nvmlDeviceGetMigDeviceHandleByIndex", cut, 7) == INVALID


def test_what_a_mig_device_is(mig: NvmlProcess) -> None:
    cut = mig.open()[0]
    half = device(mig, cut, 0)
    assert mig.call("nvmlDeviceGetName", half) == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    assert mig.call("nvmlDeviceGetIndex", half) == 0
    assert [mig.call("nvmlDeviceGetGpuInstanceId", device(mig, cut, index)) for index in range(3)] == [1, 5, 13]
    attributes = mig.call("nvmlDeviceGetAttributes_v2", half)
    assert attributes["memorySizeMB"] == 40192
    assert (attributes["gpuInstanceSliceCount"], attributes["computeInstanceSliceCount"]) == (3, 3)
    assert attributes["multiprocessorCount"] == 42
    for version in (None, pynvml.nvmlMemory_v2):
        assert mig.call("nvmlDeviceGetMemoryInfo", half, version)["total"] == 40192 * MIB
    # what NVML does not answer about an instance
    assert mig.error("nvmlDeviceGetMinorNumber", half) == INVALID
    assert mig.error("nvmlDeviceGetUtilizationRates", cut) == NOT_SUPPORTED


def test_what_only_mig_devices_have(mig: NvmlProcess) -> None:
    cut, _, whole = mig.open()
    assert [mig.call("nvmlDeviceIsMigDeviceHandle", gpu) for gpu in (cut, device(mig, cut, 0))] == [0, 1]
    for function, in_mode, otherwise in (
        ("nvmlDeviceGetGpuInstanceId", INVALID, INVALID),
        ("nvmlDeviceGetComputeInstanceId", INVALID, INVALID),
        ("nvmlDeviceGetAttributes_v2", NOT_SUPPORTED, NOT_SUPPORTED),
        ("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", INVALID, INVALID),
    ):
        assert (mig.error(function, cut), mig.error(function, whole)) == (in_mode, otherwise)


def test_profiles_of_an_a100(mig: NvmlProcess) -> None:
    gpu = mig.open()[2]
    found = {}
    for index in range(17):
        if (error := mig.error("nvmlDeviceGetGpuInstanceProfileInfo", gpu, index)) == 0:
            found[index] = profile(mig, gpu, index)
        else:
            assert error == NOT_SUPPORTED
    assert sorted(info["name"] for info in found.values()) == sorted(
        f"MIG {name}" for name in ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
    )
    small = found[pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE]
    assert (small["id"], small["sliceCount"], small["instanceCount"]) == (19, 1, 7)
    assert profile(mig, gpu, 0, version=1)["memorySizeMB"] == small["memorySizeMB"] == 9856
    assert mig.call("nvmlDeviceGetGpuInstanceProfileInfoById", gpu, 9)["name"] == "MIG 3g.40gb"
    assert mig.error("nvmlDeviceGetGpuInstanceProfileInfo", gpu, 17) == INVALID


@pytest.mark.parametrize(("name", "answer"), [("t4-pair", NOT_SUPPORTED), ("h100-pair", 0), ("dgx-h100", 0)])
def test_which_gpus_have_profiles(name: str, answer: int, tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, name))
    gpu = nvml.open()[0]
    assert nvml.error("nvmlDeviceGetGpuInstanceProfileInfo", gpu, 0) == answer
    assert nvml.call("nvmlDeviceGetMaxMigDeviceCount", gpu) == 0


def test_an_instance_leads_to_its_profile(mig: NvmlProcess) -> None:
    """The way in which NVIDIA's go-nvlib finds the name of a MIG device."""
    cut = mig.open()[0]
    half = device(mig, cut, 0)
    instance, compute = (mig.call(f"nvmlDeviceGet{kind}InstanceId", half) for kind in ("Gpu", "Compute"))
    mig.call("nvmlDeviceGetGpuInstanceById", cut, instance, keep="instance")
    info = mig.call("nvmlGpuInstanceGetInfo", {"kept": "instance"})
    assert (info["device"], info["id"], info["profileId"]) == ("gpu0", 1, 9)
    assert info["placement"] == {"start": 0, "size": 4}
    mig.call("nvmlGpuInstanceGetComputeInstanceById", {"kept": "instance"}, compute, keep="compute")
    part = mig.call("nvmlComputeInstanceGetInfo", {"kept": "compute"})
    kind = mig.call(
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        {"kept": "instance"},
        pynvml.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE,
        0,
        1,
    )
    assert (part["profileId"], kind["multiprocessorCount"]) == (kind["id"], 42)
    assert mig.error("nvmlDeviceGetGpuInstanceById", cut, 2) == NOT_FOUND
    assert mig.error("nvmlGpuInstanceGetInfo", half) == INVALID


def test_an_instance_that_is_gone_leaves_a_gap(machine: FakeNvml, mig: NvmlProcess) -> None:
    gpu = mig.open()[0]
    middle = device(mig, gpu, 1)
    uuid = mig.call("nvmlDeviceGetUUID", middle)
    machine.destroy(0, 5)
    assert indexes(mig, gpu) == [0, 2]
    assert mig.error("nvmlDeviceGetUUID", middle) == INVALID
    assert mig.error("nvmlDeviceGetHandleByUUID", uuid) == NOT_FOUND
    machine.create(0, "1g.10gb", uuid="MIG-another")
    assert names(mig, gpu) == ["3g.40gb", "1g.10gb", "1g.10gb"]
    assert mig.call("nvmlDeviceGetUUID", device(mig, gpu, 1)) == "MIG-another"


def test_the_same_place_has_the_same_uuid(machine: FakeNvml, mig: NvmlProcess) -> None:
    gpu = mig.open()[1]
    uuids = [mig.call("nvmlDeviceGetUUID", device(mig, gpu, index)) for index in range(7)]
    assert len(set(uuids)) == 7
    machine.destroy(1, 10)
    machine.create(1, "1g.10gb")
    assert [mig.call("nvmlDeviceGetUUID", device(mig, gpu, index)) for index in range(7)] == uuids


def test_compute_instances_share_the_memory_of_their_instance(machine: FakeNvml, mig: NvmlProcess) -> None:
    gpu = mig.open()[0]
    machine.destroy(0)
    machine.create(0, "3g.40gb", start=4, compute="1,2")
    assert names(mig, gpu) == ["1c.3g.40gb", "2c.3g.40gb"]
    parts = [device(mig, gpu, index) for index in range(2)]
    assert [mig.call("nvmlDeviceGetGpuInstanceId", part) for part in parts] == [2, 2]
    assert [mig.call("nvmlDeviceGetComputeInstanceId", part) for part in parts] == [0, 1]
    found = [mig.call("nvmlDeviceGetAttributes_v2", part) for part in parts]
    assert [attributes["computeInstanceSliceCount"] for attributes in found] == [1, 2]
    assert [attributes["multiprocessorCount"] for attributes in found] == [14, 28]
    assert [attributes["memorySizeMB"] for attributes in found] == [40192] * 2


def test_mig_mode_is_enabled_and_disabled(machine: FakeNvml, mig: NvmlProcess) -> None:
    cut, _, whole = mig.open()
    machine.mig(2, "enabled")
    machine.mig(0, "disabled")
    assert indexes(mig, whole) == []
    assert mig.call("nvmlDeviceGetMaxMigDeviceCount", cut) == 0
    machine.mig(0, "enabled")
    assert indexes(mig, cut) == []
    machine.create(2, "7g.80gb")
    assert names(mig, whole) == ["7g.80gb"]


def test_a_pending_mode_waits_for_a_reset_which_takes_the_instances(machine: FakeNvml, mig: NvmlProcess) -> None:
    cut, _, whole = mig.open()
    machine.set(2, mig_pending="enabled")
    assert mig.call("nvmlDeviceGetMigMode", whole) == [0, 1]
    machine.reset(2)
    machine.reset(0)
    assert mig.call("nvmlDeviceGetMigMode", whole) == [1, 1]
    assert indexes(mig, cut) == []


def test_changes_are_events_of_the_gpu(machine: FakeNvml, mig: NvmlProcess) -> None:
    gpus = mig.open()
    assert mig.call("nvmlDeviceGetSupportedEventTypes", gpus[0]) & CHANGED
    events = mig.watch(*gpus, types=CHANGED)
    machine.create(1, "1g.10gb")  # there is no room: nothing changes
    machine.destroy(1, 9)
    machine.create(1, "1g.10gb")
    machine.mig(2, "enabled")
    machine.set(2, mig="enabled", temperature=40)
    for gpu in ("gpu1", "gpu1", "gpu2"):
        event = mig.call("nvmlEventSetWait_v2", events, 60_000)
        assert (event["device"], event["eventType"]) == (gpu, CHANGED)
    assert mig.error("nvmlEventSetWait_v2", events, 10) == pynvml.NVML_ERROR_TIMEOUT


def test_an_xid_may_be_that_of_an_instance(machine: FakeNvml, mig: NvmlProcess) -> None:
    events = mig.watch(*mig.open())
    for place in ("", " 1 5", " 1 5/0"):
        machine.write(f"xid 0 43{place}")
    none = 0xFFFFFFFF
    for expected in ((none, none), (5, none), (5, 0)):
        event = mig.call("nvmlEventSetWait_v2", events, 60_000)
        assert (event["device"], event["eventData"]) == ("gpu0", 43)
        assert (event["gpuInstanceId"], event["computeInstanceId"]) == expected


def test_mig_devices_of_a_lost_gpu_are_lost(machine: FakeNvml, mig: NvmlProcess) -> None:
    half = device(mig, mig.open()[0], 0)
    machine.lose(0)
    assert mig.error("nvmlDeviceGetMemoryInfo", half) == pynvml.NVML_ERROR_GPU_IS_LOST


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("create 2 1g.10gb", "GPU 2 is not in MIG mode"),
        ("create 0 5g.50gb", 'GPU 0 has no profile "5g.50gb"'),
        ("create 0 3g.40gb", "GPU 0 has no room for an instance 3g.40gb"),
        ("create 0 1g.10gb start=9", '"start=9" is not start=, compute= or uuid= of an instance'),
        ("create 1 1g.10gb+me", "GPU 1 has no room"),
        ("destroy 0 2", 'GPU 0 has no GPU instance "2"'),
        ("profile v100 1g 0 19 1 7 1 7 14 1 0 0 0 0 9856", 'no model "v100"'),
        ("profile a100 1g 0 19 3 7 1 7 14 1 0 0 0 0 9856", "a size of 1, 2, 4 or 8 memory slices"),
        ("xid 0 43 1 half", '"half" is not a GPU instance such as 7 or 7/0'),
    ],
)
def test_what_cannot_be_is_reported(line: str, output: str, machine: FakeNvml, mig: NvmlProcess) -> None:
    gpu = mig.open()[0]
    machine.write(line)
    assert len(indexes(mig, gpu)) == 3
    assert output in mig.end()[1]


def test_slices_are_divided_whole_or_not_at_all(machine: FakeNvml, mig: NvmlProcess) -> None:
    gpu = mig.open()[0]
    machine.destroy(0)
    machine.create(0, "3g.40gb", compute="2,2")
    assert indexes(mig, gpu) == []
    machine.create(0, "1g.10gb", start=3)
    machine.create(0, "3g.40gb")
    assert [mig.call("nvmlDeviceGetGpuInstanceId", device(mig, gpu, index)) for index in range(2)] == [10, 2]
    assert "is not how to divide 3 slices" in mig.end()[1]


@pytest.mark.parametrize(("profile_id", "starts", "size"), [(19, range(7), 1), (14, (0, 2, 4), 2), (9, (0, 4), 4)])
def test_placements_of_a_profile(profile_id: int, starts: Any, size: int, mig: NvmlProcess) -> None:
    cut, _, whole = mig.open()
    found = mig.call("possible_placements", cut, profile_id)
    assert [(place["start"], place["size"]) for place in found] == [(start, size) for start in starts]
    assert mig.call("possible_placements", whole, profile_id) == found
    assert mig.error("possible_placements", cut, 1000) == NOT_SUPPORTED
