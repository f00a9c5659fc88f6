"""GPUs of the fake NVML that are lost, removed or reset, and calls of it that fail or hang."""

import time
from pathlib import Path

import pynvml

from hack.cluster.waiting import wait_until
from hack.fake_nvml.library import FakeNvml
from tests.nvml.answers import LOST, NOT_SUPPORTED, UNKNOWN, Start, uuid_of
from tests.nvml.nvml_process import NvmlProcess


def test_only_the_lost_gpu_stops_responding(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    events = nvml.watch(*gpus)
    dgx.write("xid 4 79", "lose 4")
    assert nvml.call("nvmlEventSetWait_v2", events, 1000)["device"] == "gpu4"
    assert nvml.error("nvmlEventSetWait_v2", events, 60_000) == LOST
    assert [nvml.error("nvmlDeviceGetUUID", gpu) for gpu in gpus] == [0, 0, 0, 0, LOST, 0, 0, 0]
    assert nvml.error("nvmlDeviceGetHandleByIndex", 4) == LOST
    assert nvml.call("nvmlDeviceGetCount") == 8


def test_a_removed_gpu_leaves_the_list_with_the_next_init(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    last = uuid_of(nvml, gpus[7])
    dgx.remove(2)
    assert (nvml.call("nvmlDeviceGetCount"), nvml.error("nvmlDeviceGetUUID", gpus[2])) == (8, LOST)
    dgx.add(2)
    assert nvml.error("nvmlDeviceGetUUID", gpus[2]) == LOST
    dgx.remove(2)
    nvml.call("nvmlShutdown")
    assert len(nvml.open()) == 7
    assert uuid_of(nvml, nvml.handle(6)) == last
    dgx.add(2)
    nvml.call("nvmlShutdown")
    assert len(nvml.open()) == 8


def test_gpus_can_be_listed_at_once(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    nvml.open()
    dgx.write("lists at-once", "remove 2")
    assert nvml.call("nvmlDeviceGetCount") == 7
    dgx.add(2)
    assert nvml.call("nvmlDeviceGetCount") == 8


def test_a_reset_brings_another_uuid_and_forgets_what_is_volatile(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[1]
    uncorrected = "nvmlDeviceGetTotalEccErrors", gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    dgx.set(1, uncorrected_volatile=3, uncorrected_aggregate=4, remap_pending=1)
    assert nvml.call(*uncorrected, pynvml.NVML_VOLATILE_ECC) == 3
    assert nvml.call("nvmlDeviceGetRemappedRows", gpu) == [0, 0, 1, 0]
    dgx.reset(1, uuid="GPU-another")
    assert uuid_of(nvml, gpu) == "GPU-another"
    assert nvml.call(*uncorrected, pynvml.NVML_VOLATILE_ECC) == 0
    assert nvml.call(*uncorrected, pynvml.NVML_AGGREGATE_ECC) == 4


def test_memory_errors_are_in_dram(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.set(0, corrected_aggregate=9)
    errors = [
        nvml.call("nvmlDeviceGetMemoryErrorCounter", gpu, 0, pynvml.NVML_AGGREGATE_ECC, location)
        for location in (pynvml.NVML_MEMORY_LOCATION_SRAM, pynvml.NVML_MEMORY_LOCATION_DRAM)
    ]
    assert errors == [0, 9]
    l2 = (gpu, 0, pynvml.NVML_AGGREGATE_ECC, pynvml.NVML_MEMORY_LOCATION_L2_CACHE)
    assert nvml.error("nvmlDeviceGetMemoryErrorCounter", *l2) == NOT_SUPPORTED


def test_retired_pages_are_listed(tmp_path: Path, start: Start) -> None:
    machine = FakeNvml(tmp_path, "t4-pair")
    nvml = start(machine)
    gpu, _ = nvml.open()
    machine.set(0, retired_single=2, retired_double=1, retired_pending=1)
    assert [len(nvml.call("nvmlDeviceGetRetiredPages", gpu, cause)) for cause in (0, 1)] == [2, 1]
    assert nvml.call("nvmlDeviceGetRetiredPagesPendingStatus", gpu) == 1


def test_a_broken_function_fails_for_its_gpu_until_it_is_repaired(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    dgx.break_function(1, "nvmlDeviceGetMemoryInfo", "UNKNOWN")
    dgx.break_function("*", "nvmlDeviceGetMinorNumber", "NVML_ERROR_NOT_SUPPORTED")
    assert [nvml.error("nvmlDeviceGetMemoryInfo", gpu) for gpu in gpus[:3]] == [0, UNKNOWN, 0]
    assert nvml.error("nvmlDeviceGetMemoryInfo", gpus[1], pynvml.nvmlMemory_v2) == UNKNOWN
    assert {nvml.error("nvmlDeviceGetMinorNumber", gpu) for gpu in gpus} == {NOT_SUPPORTED}
    dgx.repair(1, "nvmlDeviceGetMemoryInfo")
    dgx.repair("*")
    assert {nvml.error("nvmlDeviceGetMemoryInfo", gpu) for gpu in gpus} == {0}
    assert {nvml.error("nvmlDeviceGetMinorNumber", gpu) for gpu in gpus} == {0}


def test_a_version_of_a_function_may_be_missing(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.break_function("*", "nvmlDeviceGetMemoryInfo_v2", "FUNCTION_NOT_FOUND")
    found = nvml.error("nvmlDeviceGetMemoryInfo", gpu, pynvml.nvmlMemory_v2)
    assert (found, nvml.error("nvmlDeviceGetMemoryInfo", gpu)) == (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, 0)


def test_a_call_hangs_and_others_go_on(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    dgx.hang(0, "nvmlDeviceGetPowerUsage")
    hanging = nvml.start("nvmlDeviceGetPowerUsage", gpus[0])
    wait_until(lambda: any(call.result is None for call in dgx.recorded_calls()), "a call that hangs")
    assert nvml.call("nvmlDeviceGetPowerUsage", gpus[1]) == 70000
    assert nvml.call("nvmlDeviceGetName", gpus[0])
    assert not hanging.done()
    dgx.repair(0, "nvmlDeviceGetPowerUsage")
    assert hanging.result(60) == 70000


def test_a_call_hangs_for_a_while(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.hang(0, "nvmlDeviceGetName", 0.2)
    before = time.monotonic()
    assert nvml.call("nvmlDeviceGetName", gpu)
    assert time.monotonic() - before >= 0.2


def test_init_hangs_and_fails_too(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    dgx.write("hang * nvmlInitWithFlags")
    hanging = nvml.start("nvmlInit")
    wait_until(lambda: bool(dgx.recorded_calls()), "a call that hangs")
    assert not hanging.done()
    dgx.rewrite("init LIB_RM_VERSION_MISMATCH")
    assert getattr(hanging.exception(60), "number", 0) == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    dgx.rewrite()
    assert nvml.error("nvmlInit") == 0


def test_a_rewritten_description_takes_effect(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    events = nvml.watch(*gpus)
    dgx.write("xid 0 13", "set 0 temperature=90", "xid 0 31")
    seen = [nvml.call("nvmlEventSetWait_v2", events, 1000)["eventData"] for _ in range(2)]
    dgx.rewrite("xid 0 13", "set 1 temperature=80", "xid 0 48")
    seen.append(nvml.call("nvmlEventSetWait_v2", events, 1000)["eventData"])
    assert seen == [13, 31, 48]  # the line that stood there before is not news
    assert [nvml.call("nvmlDeviceGetTemperature", gpu, 0) for gpu in gpus[:2]] == [30, 80]
    dgx.control.unlink()
    assert nvml.call("nvmlDeviceGetTemperature", gpus[1], 0) == 30
