"""How long the event loop of each program stands: its longest turn with the largest accepted input, in CPU time of its thread.

The inputs are those of tests/largest, given to the programs' own code in this process: nothing is measured in what is shipped.
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
    """Of each program, the longest turn of all inputs: the median of some runs."""
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
