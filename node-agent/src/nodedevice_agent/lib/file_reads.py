"""Reads of files, in threads: one at a time, so that the event loop keeps its share of the interpreter."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from nodedevice_common import threads

from nodedevice_agent.lib.patient_reads import patiently

T = TypeVar("T")


class FileReads:
    """Of one event loop. Each read has threads of its own: one that hangs is none of the few that the loop has for all else, and
    nobody waits for it when the process ends. It ends within a second or so all the same, if it reads by `ask`: see `patiently`.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, read: Callable[[], T]) -> T:
        """Run this in a thread. Raises what it raises, and OSError where no thread can be started."""
        result: Future[T] = Future()
        # done only once the thread ends, whoever has given up waiting
        result.set_running_or_notify_cancel()
        async with self._lock:
            threads.start(partial(_run, partial(patiently, read), result), "files")
            return await asyncio.wrap_future(result)


def _run(read: Callable[[], T], result: "Future[T]") -> None:
    try:
        found = read()
    except Exception as exc:
        result.set_exception(exc)
    else:
        result.set_result(found)
