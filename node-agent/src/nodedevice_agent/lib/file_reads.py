"""Reads of files, in threads: one at a time, so that the event loop keeps its share of the interpreter."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from nodedevice_common import threads

from nodedevice_agent.lib.patient_reads import complete, patiently

T = TypeVar("T")


class FileReads:
    """Runs reads of files for one event loop, each in a thread of its own.

    A read that hangs does not occupy the few threads that the loop has for everything else, and does not delay the exit of the
    process. It ends within about a second anyway if it reads by `ask`: see `patiently`.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, read: Callable[[], T]) -> T:
        """Run this in a thread. Raises the read's own errors, and OSError if no thread can be started."""
        result: Future[T] = Future()
        # done only once the thread ends, even if the caller has stopped waiting
        result.set_running_or_notify_cancel()
        async with self._lock:
            threads.start(partial(complete, result, partial(patiently, read)), "files")
            return await asyncio.wrap_future(result)
