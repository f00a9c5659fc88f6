"""Reads of files, in threads: one at a time, so that the event loop keeps its share of the interpreter."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from nodedevice_common import threads

T = TypeVar("T")

# One that takes longer waits for the kernel, as for a device that hangs: it takes nothing of the interpreter, and others go on.
LONGEST_SECONDS = 1.0


class FileReads:
    """Of one event loop. Each read has a thread of its own: one that hangs is none of the few that the loop has for all else, and
    nobody waits for it when the process ends.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, read: Callable[[], T]) -> T:
        """Run this in a thread. Raises what it raises, and OSError where no thread can be started."""
        result: Future[T] = Future()
        # done only once the thread ends, whoever has given up waiting
        result.set_running_or_notify_cancel()
        async with self._lock:
            threads.start(partial(_run, read, result), "files")
            reading = asyncio.wrap_future(result)
            await asyncio.wait({reading}, timeout=LONGEST_SECONDS)
        return await reading


def _run(read: Callable[[], T], result: "Future[T]") -> None:
    try:
        found = read()
    except Exception as exc:
        result.set_exception(exc)
    else:
        result.set_result(found)
