"""What holds for every NVML, the fake ones and the driver's own: one suite, several makers.

The real one is skipped by name where there is none. No test changes anything on a GPU.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from hack.fake_nvml.library import FakeNvml
from tests.nvml.nvml_process import NvmlProcess, real_nvml_is_here

REAL = "the real one"
MACHINES = ["dgx-h100", "h100-one", "dgx1-v100", "dgx2-v100", "h100-pair", "mig-a100", "mixed-16", "t4-pair"]
WITHOUT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


@pytest.fixture(params=[*MACHINES, REAL])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NvmlProcess]:
    """A process that sees one NVML or another."""
    if request.param == REAL and not real_nvml_is_here():
        pytest.skip("no NVML here: run on a machine with an NVIDIA driver")
    environment = os.environ if request.param == REAL else FakeNvml(tmp_path, request.param).environment()
    with NvmlProcess(environment) as process:
        yield process


def answer_of(nvml: NvmlProcess, function: str, *arguments: Any) -> Any:
    """The result, or None where this GPU or driver does not support the call."""
    error = nvml.error(function, *arguments)
    assert error in (0, *WITHOUT)
    return None if error else nvml.call(function, *arguments)


def test_init_counts(either: NvmlProcess) -> None:
    uninitialized = pynvml.NVML_ERROR_UNINITIALIZED
    either.call("nvmlInit")
    either.call("nvmlInit")
    either.call("nvmlShutdown")
    assert either.error("nvmlDeviceGetCount") == 0
    either.call("nvmlShutdown")
    assert either.error("nvmlDeviceGetCount") == uninitialized
    either.call("nvmlInit")
    assert either.error("nvmlDeviceGetCount") == 0


def test_gpus_are_found_by_their_own_properties(either: NvmlProcess) -> None:
    for index, gpu in enumerate(either.open()):
        assert either.call("nvmlDeviceGetIndex", gpu) == index
        uuid = either.call("nvmlDeviceGetUUID", gpu)
        assert uuid.startswith("GPU-")
        assert either.call("nvmlDeviceGetHandleByUUID", uuid) == gpu["kept"]
        bus_id = either.call("nvmlDeviceGetPciInfo", gpu)["busId"]
        assert either.call("nvmlDeviceGetHandleByPciBusId", bus_id) == gpu["kept"]


def test_unknown_gpus_are_rejected(either: NvmlProcess) -> None:
    count = len(either.open())
    assert either.error("nvmlDeviceGetHandleByIndex", count) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    refusals = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
    assert either.error("nvmlDeviceGetHandleByUUID", "GPU-" + "0" * 8) in refusals


def test_memory_adds_up(either: NvmlProcess) -> None:
    for gpu in either.open():
        memory = either.call("nvmlDeviceGetMemoryInfo", gpu)
        assert 0 < memory["total"] == memory["used"] + memory["free"]
        if second := answer_of(either, "nvmlDeviceGetMemoryInfo", gpu, pynvml.nvmlMemory_v2):
            assert second["total"] == memory["total"] >= second["used"] + second["free"]


def test_pci_bus_ids_match_the_numbers(either: NvmlProcess) -> None:
    for gpu in either.open():
        pci = either.call("nvmlDeviceGetPciInfo", gpu)
        assert pci["busId"] == f"{pci['domain']:08X}:{pci['bus']:02X}:{pci['device']:02X}.0"
        assert pci["pciDeviceId"] & 0xFFFF == 0x10DE  # NVIDIA


def mig_devices(nvml: NvmlProcess, gpu: dict[str, str]) -> list[dict[str, str]]:
    """Handles of a GPU's MIG devices."""
    found = []
    for index in range(nvml.call("nvmlDeviceGetMaxMigDeviceCount", gpu)):
        name = f"{gpu['kept']}-{index}"
        refused = nvml.start("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index, keep=name).exception(60)
        assert getattr(refused, "number", 0) in (0, pynvml.NVML_ERROR_NOT_FOUND)
        found += [] if refused else [{"kept": name}]
    return found


def test_only_a_gpu_in_mig_mode_has_mig_devices(either: NvmlProcess) -> None:
    for gpu in either.open():
        mode = answer_of(either, "nvmlDeviceGetMigMode", gpu)
        if not mode or not mode[0]:
            assert either.call("nvmlDeviceGetMaxMigDeviceCount", gpu) == 0
            none = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
            assert either.error("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 0) in none


def test_a_mig_device_is_a_part_of_its_gpu(either: NvmlProcess) -> None:
    for gpu in either.open():
        memory = either.call("nvmlDeviceGetMemoryInfo", gpu)["total"]
        devices = mig_devices(either, gpu)
        places = {}
        for device in devices:
            uuid = either.call("nvmlDeviceGetUUID", device)
            assert uuid.startswith("MIG-")
            assert either.call("nvmlDeviceGetHandleByUUID", uuid) == device["kept"]
            assert either.call("nvmlDeviceIsMigDeviceHandle", device) == 1
            assert either.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device) == gpu["kept"]
            place = (
                either.call("nvmlDeviceGetGpuInstanceId", device),
                either.call("nvmlDeviceGetComputeInstanceId", device),
            )
            places[place] = either.call("nvmlDeviceGetAttributes_v2", device)
            mib = places[place]["memorySizeMB"]
            assert abs(either.call("nvmlDeviceGetMemoryInfo", device)["total"] - (mib << 20)) <= 64 << 20
        assert len(places) == len(devices)
        instances = {instance: attributes["memorySizeMB"] << 20 for (instance, _), attributes in places.items()}
        assert sum(instances.values()) <= memory


def test_links_are_symmetric(either: NvmlProcess) -> None:
    gpus = either.open()
    for at, one in enumerate(gpus):
        for other in gpus[at + 1 :]:
            for function, *arguments in (
                ["nvmlDeviceGetTopologyCommonAncestor"],
                ["nvmlDeviceGetP2PStatus", pynvml.NVML_P2P_CAPS_INDEX_NVLINK],
            ):
                there = answer_of(either, str(function), one, other, *arguments)
                assert there == answer_of(either, str(function), other, one, *arguments)


def test_links_that_end_at_a_gpu_end_here(either: NvmlProcess) -> None:
    gpus = either.open()
    addresses = {either.call("nvmlDeviceGetPciInfo", gpu)["busId"] for gpu in gpus}
    for gpu in gpus:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if either.error("nvmlDeviceGetNvLinkState", gpu, link):
                break
            if not either.call("nvmlDeviceGetNvLinkState", gpu, link):
                continue
            remote = answer_of(either, "nvmlDeviceGetNvLinkRemotePciInfo", gpu, link)
            kind = answer_of(either, "nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link)
            if remote is not None and kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                assert remote["busId"] in addresses


def test_an_event_set_in_which_nothing_happens_times_out(either: NvmlProcess) -> None:
    gpus = either.open()
    for gpu in gpus:
        assert either.call("nvmlDeviceGetSupportedEventTypes", gpu) & pynvml.nvmlEventTypeXidCriticalError
    events = either.watch(*gpus)
    assert either.error("nvmlEventSetWait_v2", events, 10) == pynvml.NVML_ERROR_TIMEOUT
    assert either.error("nvmlEventSetFree", events) == 0
