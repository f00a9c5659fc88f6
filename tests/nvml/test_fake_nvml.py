"""The fake NVML, called by real pynvml through the real loader, in processes of their own."""

import time
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from hack.cluster.waiting import wait_until
from hack.fake_nvml.library import FakeNvml, machines
from tests.nvml.nvml_process import NvmlProcess

LOST = pynvml.NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
INVALID = pynvml.NVML_ERROR_INVALID_ARGUMENT
TIMEOUT = pynvml.NVML_ERROR_TIMEOUT
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN

Start = Callable[[FakeNvml], NvmlProcess]


def uuid_of(nvml: NvmlProcess, gpu: dict[str, str]) -> str:
    uuid = nvml.call("nvmlDeviceGetUUID", gpu)
    assert isinstance(uuid, str)
    return uuid


COUNTS = {
    "dgx-h100": 8,
    "h100-one": 1,
    "dgx1-v100": 8,
    "dgx2-v100": 16,
    "t4-pair": 2,
    "none": 0,
    "mixed-16": 16,
    "mig-a100": 3,
    "h100-pair": 2,
}
REFUSALS = {"mismatch": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "no-driver": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}


@pytest.mark.parametrize("name", machines())
def test_every_shipped_machine_is_valid_and_has_its_gpus(name: str, tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, name))
    assert nvml.error("nvmlInit") == REFUSALS.get(name, 0)
    if name not in REFUSALS:
        gpus = nvml.open()
        assert len({uuid_of(nvml, gpu) for gpu in gpus}) == len(gpus) == COUNTS[name]
        addresses = [nvml.call("nvmlDeviceGetPciInfo", gpu)["busId"] for gpu in gpus]
        assert addresses == sorted(set(addresses))
    assert nvml.end() == (0, "")


def test_what_a_gpu_is(nvml: NvmlProcess) -> None:
    gpu = nvml.open()[5]
    assert nvml.call("nvmlDeviceGetName", gpu) == "NVIDIA H100 80GB HBM3"
    assert nvml.call("nvmlDeviceGetMinorNumber", gpu) == nvml.call("nvmlDeviceGetIndex", gpu) == 5
    memory = nvml.call("nvmlDeviceGetMemoryInfo", gpu, pynvml.nvmlMemory_v2)
    assert memory["total"] == 81559 << 20 == memory["free"] + memory["used"] + memory["reserved"]
    assert nvml.call("nvmlDeviceGetMemoryInfo", gpu)["used"] == memory["used"] + memory["reserved"]
    pci = nvml.call("nvmlDeviceGetPciInfo", gpu)
    assert (pci["busId"], pci["bus"], pci["busIdLegacy"]) == ("00000000:C3:00.0", 0xC3, "0000:C3:00.0")
    assert nvml.call("nvmlDeviceGetCudaComputeCapability", gpu) == [9, 0]
    assert nvml.call("nvmlDeviceGetMigMode", gpu) == [0, 0]
    assert nvml.error("nvmlDeviceGetNumaNodeId", gpu) == NOT_SUPPORTED
    assert nvml.call("nvmlDeviceGetMemoryAffinity", gpu, 1, pynvml.NVML_AFFINITY_SCOPE_NODE) == [1 << 1]
    assert nvml.call("nvmlDeviceGetCpuAffinity", gpu, 4) == [
        0xFF << 56,
        (1 << 48) - 1,
        0xFFFFFF << 40,
        0xFFFFFFFF,
    ]


def test_what_a_t4_lacks(tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, "t4-pair"))
    gpu, other = nvml.open()
    for function, arguments in (
        ("nvmlDeviceGetMigMode", ()),
        ("nvmlDeviceGetRemappedRows", ()),
        ("nvmlDeviceGetNvLinkState", (0,)),
    ):
        assert nvml.error(function, gpu, *arguments) == NOT_SUPPORTED
    assert nvml.call("nvmlDeviceGetRetiredPages", gpu, pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR) == []
    assert nvml.call("nvmlDeviceGetP2PStatus", gpu, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) != 0


def nvlinks(nvml: NvmlProcess, gpu: dict[str, str], count: int) -> list[str]:
    return [nvml.call("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link)["busId"] for link in range(count)]


def test_nvlinks_of_a_dgx_h100_end_at_switches(nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    far_ends = nvlinks(nvml, gpus[0], 18)
    assert [far_ends.count(end) for end in sorted(set(far_ends))] == [4, 5, 5, 4]
    assert not set(far_ends) & {nvml.call("nvmlDeviceGetPciInfo", gpu)["busId"] for gpu in gpus}
    assert nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", gpus[0], 0) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert nvml.error("nvmlDeviceGetNvLinkState", gpus[0], 18) == INVALID
    status = [nvml.call("nvmlDeviceGetP2PStatus", gpus[0], gpu, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) for gpu in gpus[1:]]
    assert status == [pynvml.NVML_P2P_STATUS_OK] * 7


def test_nvlinks_of_a_dgx1_are_a_hybrid_cube_mesh(tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, "dgx1-v100"))
    gpus = nvml.open()
    addresses = [nvml.call("nvmlDeviceGetPciInfo", gpu)["busId"] for gpu in gpus]
    ends = [nvlinks(nvml, gpu, 6) for gpu in gpus]
    mesh = [[own.count(address) for address in addresses] for own in ends]
    assert mesh == [list(column) for column in zip(*mesh, strict=True)]
    assert [sorted(row) for row in mesh] == [[0, 0, 0, 0, 1, 1, 2, 2]] * 8
    levels = [nvml.call("nvmlDeviceGetTopologyCommonAncestor", gpus[0], gpu) for gpu in gpus]
    assert levels == [0, 10, 30, 30, 50, 50, 50, 50]
    near = nvml.call("nvmlDeviceGetTopologyNearestGpus", gpus[0], pynvml.NVML_TOPOLOGY_HOSTBRIDGE)
    assert near == ["gpu2", "gpu3"]


def test_gpus_without_nvlink_have_no_links(tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, "mixed-16"))
    gpus = nvml.open()
    kinds = [nvml.call("nvmlDeviceGetName", gpu) for gpu in gpus]
    joined = [nvml.call("nvmlDeviceGetP2PStatus", gpus[0], gpu, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) for gpu in gpus[1:]]
    assert [status == pynvml.NVML_P2P_STATUS_OK for status in joined] == [kind == kinds[0] for kind in kinds[1:]]


def test_a_link_that_goes_down_is_not_active(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    dgx.write("nvlink 0 3 down")
    assert [nvml.call("nvmlDeviceGetNvLinkState", gpu, link) for link in (2, 3, 4)] == [1, 0, 1]


@pytest.mark.parametrize("by", ["UUID", "PciBusId"])
def test_a_gpu_is_found_by_its_own_properties(by: str, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[2]
    written = uuid_of(nvml, gpu) if by == "UUID" else nvml.call("nvmlDeviceGetPciInfo", gpu)["busId"]
    assert nvml.call(f"nvmlDeviceGetHandleBy{by}", written) == "gpu2"
    assert nvml.error(f"nvmlDeviceGetHandleBy{by}", "0000:FF:00.0") == pynvml.NVML_ERROR_NOT_FOUND


def test_an_xid_ends_the_wait(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    waiting = nvml.start("nvmlEventSetWait_v2", events, 60_000)
    dgx.xid(3, 79)
    event = waiting.result(60)
    assert (event["device"], event["eventType"], event["eventData"]) == ("gpu3", 8, 79)
    assert event["gpuInstanceId"] == event["computeInstanceId"] == 0xFFFFFFFF
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_xids_come_in_order_and_only_for_registered_gpus(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    events = nvml.watch(gpus[1], gpus[2])
    dgx.write("xid 1 13", "xid 0 79", "xid 2 31", "event 1 2 5")
    seen = [nvml.call("nvmlEventSetWait_v2", events, 1000) for _ in range(2)]
    assert [(event["device"], event["eventData"]) for event in seen] == [("gpu1", 13), ("gpu2", 31)]
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_a_storm_of_xids_arrives_whole(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    dgx.xid(0, 13, times=500)
    dgx.xid(7, 48)
    seen = [nvml.call("nvmlEventSetWait_v2", events, 1000)["eventData"] for _ in range(501)]
    assert seen == [13] * 500 + [48]


def test_an_unsupported_type_of_event_is_refused(nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    nvml.watch()
    types = nvml.call("nvmlDeviceGetSupportedEventTypes", gpus[0])
    assert types & pynvml.nvmlEventTypeXidCriticalError
    assert nvml.error("nvmlDeviceRegisterEvents", gpus[0], 1 << 40, {"kept": "events"}) == NOT_SUPPORTED


def test_past_events_are_not_reported(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    dgx.xid(0, 79)
    events = nvml.watch(*nvml.open())
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_an_event_set_that_is_freed_ends_the_wait_in_it(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    waiting = nvml.start("nvmlEventSetWait_v2", events, 60_000)
    nvml.call("nvmlEventSetFree", events)
    assert getattr(waiting.exception(60), "number", 0) == INVALID
    assert nvml.error("nvmlEventSetFree", events) == INVALID


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


def test_before_init_and_after_shutdown_nothing_is_answered(nvml: NvmlProcess) -> None:
    nvml.call("nvmlInit")
    gpu = nvml.open()[0]
    nvml.call("nvmlShutdown")
    assert nvml.error("nvmlDeviceGetName", gpu) == 0
    nvml.call("nvmlShutdown")
    uninitialized = pynvml.NVML_ERROR_UNINITIALIZED
    assert nvml.error("nvmlDeviceGetName", gpu) == nvml.error("nvmlShutdown") == uninitialized


def test_two_processes_see_one_machine(dgx: FakeNvml, start: Start) -> None:
    first, second = start(dgx), start(dgx)
    gpus = first.open(), second.open()
    events = [process.watch(*own) for process, own in zip((first, second), gpus, strict=True)]
    dgx.xid(6, 64)
    for process, own in zip((first, second), events, strict=True):
        assert process.call("nvmlEventSetWait_v2", own, 60_000)["device"] == "gpu6"


def test_calls_are_recorded(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[3]
    nvml.error("nvmlDeviceGetNumaNodeId", gpu)
    last = dgx.recorded_calls()[-1]
    assert (last.function, last.slot, last.result) == ("nvmlDeviceGetNumaNodeId", 3, NOT_SUPPORTED)


def test_texts_of_errors(nvml: NvmlProcess) -> None:
    nvml.call("nvmlInit")
    assert nvml.call("nvmlErrorString", LOST) == "GPU is lost"
    assert nvml.call("nvmlErrorString", 12345) == "Unknown Error"


# -- what a driver knows -----------------------------------------------------------------------------------------------------


def recovery_action(nvml: NvmlProcess, gpu: dict[str, str]) -> int:
    (found,) = nvml.call("nvmlDeviceGetFieldValues", gpu, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(found["value"]["uiVal"]) if found["nvmlReturn"] == 0 else -int(found["nvmlReturn"])


@pytest.mark.parametrize(
    ("xid", "action"), [(48, 1), (79, 1), (95, 1), (119, 1), (109, 1), (13, 0), (31, 0), (43, 0), (94, 0), (63, 0)]
)
def test_an_xid_sets_the_action_that_a_driver_would(dgx: FakeNvml, nvml: NvmlProcess, xid: int, action: int) -> None:
    gpu, other = nvml.open()[:2]
    dgx.xid(0, xid)
    assert (recovery_action(nvml, gpu), recovery_action(nvml, other)) == (action, 0)
    # none does not end what is requested
    dgx.xid(0, 31)
    assert recovery_action(nvml, gpu) == action
    dgx.reset(0)
    assert recovery_action(nvml, gpu) == 0


def ecc_errors(nvml: NvmlProcess, gpu: dict[str, str]) -> tuple[int, int]:
    """Uncorrectable ones since the driver was loaded, and of all time."""
    counters = (pynvml.NVML_VOLATILE_ECC, pynvml.NVML_AGGREGATE_ECC)
    volatile, aggregate = (nvml.call("nvmlDeviceGetTotalEccErrors", gpu, 1, counter) for counter in counters)
    return int(volatile), int(aggregate)


@pytest.mark.parametrize(
    ("machine", "xid", "errors"), [("dgx-h100", 94, 1), ("dgx-h100", 95, 1), ("dgx-h100", 31, 0), ("t4-pair", 94, 0)]
)
def test_a_gpu_that_contains_ecc_errors_counts_them(
    tmp_path: Path, start: Start, machine: str, xid: int, errors: int
) -> None:
    gpus = FakeNvml(tmp_path, machine)
    nvml = start(gpus)
    gpu, other = nvml.open()[:2]
    gpus.xid(0, xid)
    gpus.xid(0, xid, times=2)
    assert (ecc_errors(nvml, gpu), ecc_errors(nvml, other)) == ((3 * errors, 3 * errors), (0, 0))
    gpus.reset(0)
    assert ecc_errors(nvml, gpu) == (0, 3 * errors)


def test_the_action_of_an_xid_may_be_another_and_come_later(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu, other = nvml.open()[:2]
    dgx.write("action 31 4", "action 94 2 86400000")
    dgx.xid(0, 31)
    dgx.xid(1, 94)
    assert (recovery_action(nvml, gpu), recovery_action(nvml, other)) == (4, 0)
    dgx.write("action 94 2 1")
    dgx.xid(1, 94)
    wait_until(lambda: recovery_action(nvml, other) == 2, "it comes", 60)


@pytest.mark.parametrize("name", ["t4-pair", "dgx1-v100", "dgx2-v100"])
def test_older_machines_have_no_such_field(name: str, tmp_path: Path, start: Start) -> None:
    machine = FakeNvml(tmp_path, name)
    nvml = start(machine)
    gpu = nvml.open()[0]
    machine.xid(0, 79)
    machine.reset(0)
    assert recovery_action(nvml, gpu) == -NOT_SUPPORTED


def fabric(nvml: NvmlProcess, gpu: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = nvml.call("fabric", gpu)
    return found


def test_the_fabric_of_nvswitches(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    assert fabric(nvml, gpu) == {"state": 3, "status": 0, "healthSummary": 1}
    dgx.set(0, fabric_state=2, fabric_health=2)
    assert fabric(nvml, gpu) == {"state": 2, "status": 0, "healthSummary": 2}
    dgx.set(0, fabric_state=3, fabric_status=999)
    assert fabric(nvml, gpu)["status"] == 999


def test_without_nvswitches_there_is_no_fabric(tmp_path: Path, start: Start) -> None:
    nvml = start(FakeNvml(tmp_path, "h100-pair"))
    assert fabric(nvml, nvml.open()[0]) == {"state": 0, "status": 0, "healthSummary": 0}


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("file nvidiactl denied", pynvml.NVML_ERROR_UNKNOWN),
        ("file nvidiactl missing", pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
    ],
)
def test_a_control_file_that_cannot_be_opened(dgx: FakeNvml, nvml: NvmlProcess, statement: str, error: int) -> None:
    dgx.write(statement)
    assert nvml.error("nvmlInit") == error
    dgx.write("file nvidiactl there")
    assert len(nvml.open()) == 8


@pytest.mark.parametrize("state", ["missing", "denied"])
def test_a_gpu_whose_file_cannot_be_opened_is_not_listed(dgx: FakeNvml, nvml: NvmlProcess, state: str) -> None:
    dgx.write(f"file nvidia3 {state}")
    assert len(nvml.open()) == 7
    dgx.write("file nvidia3 there")
    nvml.call("nvmlShutdown")
    assert len(nvml.open()) == 8


def test_events_may_come_as_late_as_they_did(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    events = nvml.watch(gpu)
    dgx.write("events late")
    dgx.xid(0, 13)
    dgx.xid(0, 31)
    # in their order, the first one after 107 ms
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == pynvml.NVML_ERROR_TIMEOUT
    assert [nvml.call("nvmlEventSetWait_v2", events, 60000)["eventData"] for _ in range(2)] == [13, 31]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("events soon", "events come late or at-once"),
        ("file nvidiactl gone", "a device file is missing, denied or there"),
        ("action 31 x", "an action has the number of an Xid"),
        ("field h100 0 1", "is not the number of a field below"),
        ("field h100 5 x", "is not a number"),
        ("field nothing 5 1", "no model"),
    ],
)
def test_statements_of_it_that_make_no_sense(dgx: FakeNvml, nvml: NvmlProcess, statement: str, why: str) -> None:
    dgx.write(statement)
    assert len(nvml.open()) == 8
    assert why in nvml.end()[1]
