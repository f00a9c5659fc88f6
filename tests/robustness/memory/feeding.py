"""Feeds rows to a whole agent, and bounds what that costs: memory, and the turns of its event loop.

The chart limits an agent to 384 MiB. An answer to the container runtime waits for the turn that is under way.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.integration import agent_process
from tests.robustness.memory.rows import Row
from tests.robustness.memory.scene import Scene

MOST_MIB_OF_ROW = 224
MOST_MIB_OF_ALL = 320
MOST_TURN_MS = 50


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    # all rows at once take minutes on a machine with other work
    monkeypatch.setattr(agent_process, "PATIENCE_SECONDS", 240.0)
    # a short path, for sockets
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        async with Scene(Path(folder)) as made:
            yield made


async def feed(scene: Scene, rows: Sequence[Row], most_mib: float) -> None:
    async with AsyncExitStack() as ends:
        steps = [row(scene) for row in rows]
        for step in steps:
            ends.push_async_callback(step.aclose)
            await anext(step)
        scene.start()
        for step in steps:
            async for _ in step:
                raise AssertionError("a row is prepared once")
        await scene.until_quiet()
        scene.agent.verify_no_traceback()
        turns = scene.turns()
        print(f"peak {scene.peak_mib():.0f} MiB, kept {scene.kept_mib():.0f} MiB, turns {turns[:8]}")
        assert scene.peak_mib() <= most_mib
        assert [turn for turn in turns if turn.cpu_ms > MOST_TURN_MS] == []
