"""Measures the longest turn of each program's event loop with the largest accepted input, in CPU time of its thread.

The inputs come from tests/largest, given to the programs' own code in this process: shipped code contains no
measurement.
"""

import tempfile
from pathlib import Path
from typing import Final

from hack.bench.results import Result, judged
from tests.fakes.turns import CpuSeconds
from tests.largest.run import PROGRAMS, longest_turn

_RUNS: Final = 3
_GOAL_MS: Final = 50


def loop_turn_max() -> dict[str, Result]:
    """The longest turn of all inputs for each program: the median of some runs."""
    return {f"loop_turn_max_{program}": _of(program) for program in PROGRAMS}


def _of(program: str) -> Result:
    measured = sorted(max(_milliseconds(program)) for _ in range(_RUNS))
    return judged(measured[_RUNS // 2], measured[-1], "ms", _GOAL_MS, _RUNS)


def _milliseconds(program: str) -> list[float]:
    found = []
    for scenario in PROGRAMS[program]:
        with tempfile.TemporaryDirectory(prefix="turns-") as folder:
            found.append(1000 * longest_turn(scenario, Path(folder), CpuSeconds()).most.cost)
    return found
