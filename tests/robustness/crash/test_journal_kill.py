"""kill -9 of a process that does nothing but save: what it said to be saved is there, and at most one state more."""

import asyncio
import os
import random
import sys
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file

from tests.robustness.crash.busy_store import number_of

_KILLS = 6
_MOST_STATES = 60
_PATIENCE_SECONDS = 60
SEED = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(2**32)))


async def test_what_was_said_to_be_saved_is_there(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    number = -1
    for _ in range(_KILLS):
        said = await kill_after(chance.randint(1, _MOST_STATES), tmp_path, number + 1)
        number = number_of(checkpoint_file.read(tmp_path))
        assert said <= number <= said + 1, f"CRASH_SEED={SEED}"


async def kill_after(states: int, folder: Path, first: int) -> int:
    """Let a process save so many and kill it. Returns the last that it told of."""
    command = ["-m", "tests.robustness.crash.busy_store", str(folder), str(first)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            for _ in range(states):
                said = await process.stdout.readline()
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    # a line may be cut as well
    return int((said + rest[: rest.rfind(b"\n") + 1]).split()[-1])
