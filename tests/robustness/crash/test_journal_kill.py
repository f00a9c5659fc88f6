"""kill -9 of a process that only saves: the last state that it reported is there, or the one after it."""

import asyncio
import random
import sys
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file

from tests.examples import seed
from tests.robustness.crash.busy_store import number_of

_KILLS = 6
_MOST_STATES = 60
_TIMEOUT_SECONDS = 60
SEED = seed("CRASH_SEED")


async def test_a_reported_state_is_there(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    number = -1
    for _ in range(_KILLS):
        reported = await kill_after(chance.randint(1, _MOST_STATES), tmp_path, number + 1)
        number = number_of(checkpoint_file.read(tmp_path))
        assert reported <= number <= reported + 1, f"CRASH_SEED={SEED}"


async def kill_after(states: int, folder: Path, first: int) -> int:
    """Let a process save so many states and kill it. Returns the number of the last one that it reported."""
    command = ["-m", "tests.robustness.crash.busy_store", str(folder), str(first)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            for _ in range(states):
                reported = await process.stdout.readline()
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    # the last line of output may be incomplete
    return int((reported + rest[: rest.rfind(b"\n") + 1]).split()[-1])
