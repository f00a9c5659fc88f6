"""Runs what is given to an entrance, and finds the turn of the event loop that it took longest, by any meter."""

import asyncio
import gc
from pathlib import Path
from typing import Final

from tests.fakes.turns import Meter, Turns, turns
from tests.largest import agent, extender, operator
from tests.largest.node import Scenario

PROGRAMS: Final[dict[str, tuple[Scenario, ...]]] = {
    "agent": agent.SCENARIOS,
    "operator": operator.SCENARIOS,
    "extender": extender.SCENARIOS,
}


def longest_turn(scenario: Scenario, folder: Path, meter: Meter) -> Turns:
    """folder: for files, with a short path."""
    return asyncio.run(_run(scenario, folder, meter))


async def _run(scenario: Scenario, folder: Path, meter: Meter) -> Turns:
    steps = aiter(scenario(folder))
    await anext(steps)
    # what was prepared is no garbage: to look through it would take longer than any turn, as the programs know, too
    gc.collect()
    gc.freeze()
    try:
        with turns(meter) as found:
            # the turn that is under way is not measured
            await asyncio.sleep(0)
            async for _ in steps:
                raise AssertionError("a scenario is prepared once")
            await asyncio.sleep(0)
    finally:
        gc.unfreeze()
    return found
