"""What a driver knows, in the fake NVML: recovery actions, ECC errors, the fabric, and device files that cannot be opened."""

from pathlib import Path

import pynvml
import pytest

from hack.cluster.waiting import wait_until
from hack.fake_nvml.library import FakeNvml
from tests.nvml.answers import NOT_SUPPORTED, Start
from tests.nvml.nvml_process import NvmlProcess


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
