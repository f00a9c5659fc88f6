"""`python -m hack.gpu_check`: describes the machine's real NVML as a table, and compares it with the fake one.

Needs pynvml and, for the comparison, a C compiler; nothing of this project must be installed. It only reads. Writes
its findings as JSON as well. Exits with 0 without an NVML, so that it may run on any machine; with 1 when types or
functions differ from the fake's, or when the driver does not work.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hack.fake_nvml.library import FakeNvml, exported_symbols, machines
from tests.cluster.errors import BinaryError

_ROOT = Path(__file__).resolve().parents[2]
# by NVML's number of the architecture: the description that is likest; any other GPU is newer
_LIKEST = {5: "dgx1-v100", 6: "t4-pair", 7: "mixed-16", 8: "mixed-16"}
_NEWEST = "dgx-h100"
_CUT = "mig-a100"
_LIBRARY_NOT_FOUND = 12


class Trouble(Exception):
    """The check is impossible; the text names the remedy."""


def survey(environment: Mapping[str, str], symbols: Sequence[str], timeout_seconds: float) -> dict[str, Any]:
    """Ask in a process of its own. Raises Trouble when that does not come to its end."""
    command = [sys.executable, "-m", "hack.gpu_check.survey", *symbols]
    try:
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, check=False, capture_output=True, text=True, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired:
        raise Trouble(f"NVML did not respond within {timeout_seconds:g} s: see NVRM in the kernel log") from None
    if done.returncode != 0:
        raise Trouble(f"asking NVML ended with {done.returncode}:\n{done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def likest_machine(real: Mapping[str, Any]) -> str:
    """The name of the description to compare with."""
    if not real["gpus"]:
        return "none"
    if any(len(device) > 1 for gpu in real["gpus"] for device in gpu["mig"]):
        return _CUT
    return _LIKEST.get(real["gpus"][0]["calls"]["nvmlDeviceGetArchitecture()"].get("value"), _NEWEST)


def check(arguments: argparse.Namespace) -> int:
    """Run the check and print the result; returns the exit status."""
    from hack.gpu_check import tables
    from hack.gpu_check.comparison import compare

    symbols = exported_symbols()
    real = survey(os.environ, symbols, arguments.timeout)
    if real.get("init") == _LIBRARY_NOT_FOUND:
        print("no NVML here: libnvidia-ml.so.1 was not found; nothing to check")
        return 0
    if "init" in real:
        raise Trouble(f"NVML is here and does not work: {real['text']} (error {real['init']}): see nvidia-smi")
    print("\n".join(tables.whole(real)))
    machine = arguments.machine or likest_machine(real)
    with tempfile.TemporaryDirectory() as folder:
        fake = survey(FakeNvml(Path(folder), machine).environment(), symbols, arguments.timeout)
    found = compare(real, fake)
    print()
    print("\n".join(tables.findings(found, machine)))
    answers = {"real": real, "machine": machine, "findings": [vars(finding) for finding in found]}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(answers, indent=1) + "\n")
    print(f"\nall answers: {arguments.json}")
    return int(any(finding.is_fault for finding in found))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.gpu_check", description=__doc__)
    parser.add_argument("--machine", choices=machines(), help="the fake's description to compare with")
    parser.add_argument("--json", type=Path, default=_ROOT / "build" / "gpu-check.json", help="where to write it")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for all calls together")
    arguments = parser.parse_args()
    if find_spec("pynvml") is None:
        print("the module pynvml is missing: pip install nvidia-ml-py, or make setup", file=sys.stderr)
        return 1
    try:
        return check(arguments)
    except (Trouble, BinaryError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
