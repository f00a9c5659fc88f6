"""Waits for what no event shows, such as the contents of a file. Whoever can wait for an event does that instead."""

import asyncio
from collections.abc import Callable
from typing import Final

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


async def until(holds: Callable[[], bool]) -> None:
    """Return once that holds. Raises TimeoutError when it does not for a minute."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(_POLL_SECONDS)
