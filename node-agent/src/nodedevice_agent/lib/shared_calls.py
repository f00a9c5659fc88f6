"""A call that one caller starts and several wait for, such as a long read of a file."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedCall:
    """Runs a call to its end, one at a time, even if callers stop waiting. Callers that arrive meanwhile share the next run.

    So each caller gets a result that is newer than its request, and many callers cost two runs. Raises the call's errors.
    """

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._one_at_a_time = asyncio.Lock()
        # the run that has not begun
        self._next: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._next is None:
            self._next = asyncio.create_task(self._begin())
        await asyncio.shield(self._next)

    async def _begin(self) -> None:
        async with self._one_at_a_time:
            self._next = None
            await self._run()
