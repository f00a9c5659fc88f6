"""The fake NVML, called by real pynvml through the real loader, in processes of their own: machines, and what their GPUs are."""

from pathlib import Path

import pynvml
import pytest

from hack.fake_nvml.library import FakeNvml, machines
from tests.nvml.answers import INVALID, LOST, NOT_SUPPORTED, Start, uuid_of
from tests.nvml.nvml_process import NvmlProcess

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
