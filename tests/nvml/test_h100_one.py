"""The fake's machine h100-one answers as the real one did: an H100 80GB HBM3 with driver 580.159.04 (docs/gpu.md).

h100_one.json has what that answered, without times. Of what was measured in a moment, such as its power, the type counts.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from hack.fake_nvml.library import FakeNvml, exported_symbols

_ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads(Path(__file__).with_name("h100_one.json").read_text())
_MISSING = {"error": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
# of a moment; the UUID was replaced in the file
MEASURED = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
)


def run(module: str, environment: dict[str, str], *arguments: str, text: str = "") -> Any:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=_ROOT, env=environment, input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The fake's, in the form of the file."""
    environment = FakeNvml(tmp_path_factory.mktemp("nvml"), "h100-one").environment()
    found = run("tests.nvml.twin_child", environment, text=json.dumps(RECORDED))
    return {**found, "gpu_check": run("hack.gpu_check.survey", environment, *exported_symbols())}


def compared(recorded: Any, answer: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each call and its two answers: everything that has a value or an error."""
    if isinstance(recorded, dict) and not {"value", "error"} & recorded.keys():
        for key, value in recorded.items():
            yield from compared(value, answer[key], f"{where}/{key}")
    elif isinstance(recorded, list):
        assert len(recorded) == len(answer), where
        for number, (one, other) in enumerate(zip(recorded, answer, strict=True)):
            yield from compared(one, other, f"{where}/{number}")
    else:
        yield where, bare(recorded), bare(answer)


def bare(answer: Any) -> Any:
    return (
        {key: value for key, value in answer.items() if key in ("value", "error")}
        if isinstance(answer, dict)
        else answer
    )


def every(answers: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    recorded = {
        key: value for key, value in RECORDED.items() if key not in ("fields_not_supported", "fields_invalid_argument")
    }
    recorded["supported_events"] = {key: value for key, value in recorded["supported_events"].items() if key != "names"}
    recorded["names"] = RECORDED["supported_events"]["names"]
    invalid = {"error": pynvml.NVML_ERROR_INVALID_ARGUMENT}
    recorded["fields_invalid_argument"] = dict.fromkeys(RECORDED["fields_invalid_argument"], invalid)
    return [pair for key, value in recorded.items() for pair in compared(value, answers[key], key)]


def is_alike(where: str, one: Any, other: Any) -> bool:
    if any(name in where for name in MEASURED) and "value" in one and "value" in other:
        return type(one["value"]) is type(other["value"])
    return bool(one == other)


def test_it_answers_as_the_real_one(answers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    pairs = every(answers)
    lacking = [where for where, one, other in pairs if other == _MISSING and one != _MISSING]
    rest = [pair for pair in pairs if pair[0] not in lacking]
    different = [pair for pair in rest if not is_alike(*pair)]
    with capsys.disabled():
        print(
            f"\nh100-one: {len(rest) - len(different)} equal, {len(lacking)} that the fake lacks, {len(different)} different"
        )
        print("  lacks: " + ", ".join(where.partition("/")[2] for where in lacking))
    assert different == []
    assert len(rest) > len(lacking)


def test_every_other_field_is_not_supported(tmp_path: Path) -> None:
    """Of the fields about a device that pynvml names; the survey asked for most of them."""
    known = {*RECORDED["fields"], *RECORDED["fields_invalid_argument"]}
    numbers = {getattr(pynvml, name) for name in known}
    others = [
        name
        for name, number in vars(pynvml).items()
        if name.startswith("NVML_FI_DEV_") and isinstance(number, int) and number not in numbers
    ]
    asked = {**RECORDED, "fields": dict.fromkeys(others, 0)}
    found = run("tests.nvml.twin_child", FakeNvml(tmp_path, "h100-one").environment(), text=json.dumps(asked))["fields"]
    assert {json.dumps(value) for value in found.values()} == {json.dumps({"error": pynvml.NVML_ERROR_NOT_SUPPORTED})}
