"""`python -m hack.gpu_check`, with a fake machine instead of a real one."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hack.fake_nvml.library import FakeNvml
from hack.gpu_check.comparison import Finding, compare
from tests.nvml.nvml_process import real_nvml_is_here

ROOT = Path(__file__).resolve().parents[2]


def run(environment: Mapping[str, str], folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hack.gpu_check", "--json", str(folder / "check.json"), *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx1-v100", "mig-a100", "t4-pair", "none"])
def test_a_machine_is_shown_and_is_like_its_description(name: str, tmp_path: Path) -> None:
    done = run(FakeNvml(tmp_path, name).environment(), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"no call differs from the fake's {name}" in done.stdout
    assert json.loads((tmp_path / "check.json").read_text())["machine"] == name


def test_the_table_shows_the_links_of_gpus(tmp_path: Path) -> None:
    shown = run(FakeNvml(tmp_path, "dgx1-v100").environment(), tmp_path).stdout.splitlines()
    assert "GPU0  X     NV1   NV1   NV2   NV2   SYS   SYS   SYS" in shown
    assert "events 0xb: SingleBitEccError, DoubleBitEccError, XidCriticalError" in shown


def test_the_table_shows_mig_devices(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, "mig-a100")
    machine.destroy(0, 5)
    machine.create(0, "2g.20gb", compute="1,1")
    shown = [line.split() for line in run(machine.environment(), tmp_path).stdout.splitlines()]
    rows = [[row[0], row[1], *row[-5:]] for row in shown if any(word.startswith("MIG-") for word in row)]
    assert rows[:4] == [
        ["0", "1/0", "3g.40gb", "40192", "3", "of", "3"],
        ["0", "5/0", "1c.2g.20gb", "19968", "1", "of", "2"],
        ["0", "13/0", "1g.10gb", "9856", "1", "of", "1"],
        ["0", "5/1", "1c.2g.20gb", "19968", "1", "of", "2"],
    ]
    assert len(rows) == 4 + 7


def test_what_differs_of_a_mig_device_is_reported(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, "mig-a100")
    machine.break_function("*", "nvmlDeviceGetAttributes_v2", "UNKNOWN")
    done = run(machine.environment(), tmp_path)
    assert done.returncode == 0
    notes = [line.split()[:4] for line in done.stdout.splitlines()]
    assert ["note", "MIG", "device:", "nvmlDeviceGetAttributes_v2"] in notes


def test_differences_are_reported(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, "dgx-h100")
    machine.break_function("*", "nvmlDeviceGetMemoryAffinity", "NOT_SUPPORTED")
    machine.lose(7)
    done = run(machine.environment(), tmp_path)
    assert done.returncode == 0
    assert "GPU 7 cannot be reached: GPU_IS_LOST" in done.stdout
    assert "NOT_SUPPORTED on 7 of 7" in done.stdout
    note = next(line for line in done.stdout.splitlines() if line.startswith("note"))
    assert note.split() == ["note", "nvmlDeviceGetMemoryAffinity(16,", "0)", "NOT_SUPPORTED", "[int]"]


def test_a_driver_that_does_not_work_is_an_error(tmp_path: Path) -> None:
    done = run(FakeNvml(tmp_path, "mismatch").environment(), tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("NVML is here and does not work: ")


def test_an_invalid_text_is_a_fault(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, "t4-pair")
    machine.write(b'set 1 name="Tesla \xff T4"')
    done = run(machine.environment(), tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    fault = next(line for line in done.stdout.splitlines() if line.startswith("FAULT"))
    assert "nvmlDeviceGetName()" in fault
    assert "text that is not UTF-8" in fault


def test_a_driver_that_hangs_is_given_up(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, "t4-pair")
    machine.hang(1, "nvmlDeviceGetName")
    done = run(machine.environment(), tmp_path, "--timeout", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did not respond within 3 s" in done.stderr


@pytest.mark.skipif(real_nvml_is_here(), reason="shows what is printed without NVML: run without an NVIDIA driver")
def test_a_missing_library_is_reported(tmp_path: Path) -> None:
    done = run(os.environ, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no NVML here: ")


def survey(**calls: Any) -> dict[str, Any]:
    gpu = {"calls": calls, "links": [], "mig": []}
    return {"system": {}, "symbols": sorted(calls), "gpus": [gpu], "pairs": {}, "events": {}, "wrong use": {}}


ANSWERED, REFUSED = {"value": 5, "shape": "int"}, {"error": 3}
EMPTY = Finding("asked", "[]", "[int]", False)


@pytest.mark.parametrize(
    ("real", "fake", "found"),
    [
        pytest.param(ANSWERED, {"value": 7, "shape": "int"}, [], id="another number"),
        pytest.param(REFUSED, REFUSED, [], id="both refuse"),
        pytest.param(REFUSED, ANSWERED, [Finding("asked", "error 3", "int", False)], id="one refuses"),
        pytest.param(REFUSED, {"error": 2}, [Finding("asked", "error 3", "error 2", False)], id="other error"),
        pytest.param(ANSWERED, {"value": "", "shape": "str"}, [Finding("asked", "int", "str", True)], id="other type"),
        pytest.param({"value": [], "shape": "[]"}, {"value": [1], "shape": "[int]"}, [EMPTY], id="an empty list"),
    ],
)
def test_types_are_compared_and_numbers_not(real: dict[str, Any], fake: dict[str, Any], found: list[Finding]) -> None:
    assert compare(survey(asked=real), survey(asked=fake)) == found


def test_a_function_that_is_missing_is_a_fault() -> None:
    assert compare(survey(), survey(asked=ANSWERED)) == [Finding("asked", "not there", "there", True)]
