"""Starts threads. Without free process IDs a machine cannot start one for a while: then a caller gets an OSError, or waits."""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SECONDS = 1.0
NO_THREAD = (
    "no thread can be started: free process IDs (pids) of the machine, or raise the limit of this process or pod"
)


def start(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread. Raises OSError (EAGAIN) if that is impossible now."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise OSError(errno.EAGAIN, NO_THREAD) from exc
    return thread


async def in_thread(run: Callable[[], T]) -> T:
    """Run this in a thread of the event loop's pool. Wait, and log it, while none can be started. Raises errors of `run`."""
    loop, is_logged = asyncio.get_running_loop(), False
    while True:
        call = _Call(run)
        try:
            running: asyncio.Future[T] = loop.run_in_executor(None, call)
        except RuntimeError:
            # the pool has kept it for its next thread
            call.is_given_up = True
        else:
            return await running
        if not is_logged:
            log.warning("waiting for a thread", extra={"error": NO_THREAD, "retry_in_seconds": _RETRY_SECONDS})
        is_logged = True
        await asyncio.sleep(_RETRY_SECONDS)


async def in_thread_if(is_long: bool, run: Callable[[], T]) -> T:
    """Run this in a thread if it is long: for short work a thread costs more. Raises errors of `run`."""
    return await in_thread(run) if is_long else run()


class Shared(Generic[T]):
    """Shares one call in a thread among all callers, so that they do not use up the pool."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._running: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Raises errors of the call. It continues for the others if one caller is cancelled."""
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(in_thread(self._run))
            # avoids a log line if all callers were cancelled
            self._running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._running)


class _Call(Generic[T]):
    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self.is_given_up = False

    def __call__(self) -> T:
        if self.is_given_up:
            raise RuntimeError("the caller was cancelled")
        return self._run()
