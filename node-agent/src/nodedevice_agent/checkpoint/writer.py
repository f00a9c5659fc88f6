"""Writes the checkpoint in the background, off the event loop, one write at a time: many changes become one write.

A change goes into the journal at once; the whole file follows within a second, and includes what has changed meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from nodedevice_agent.checkpoint.store import CheckpointStore
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint

log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RETRY_SECONDS = 1.0
# A request during the write of a line is one of many: the next write waits for more of them. A single request does not wait.
_GATHER_SECONDS = 0.002
# At most one whole write a second, and the file alone is never older.
WHOLE_AFTER_SECONDS = 1.0


class CheckpointWriter:
    """Writes what `current` returns after each request, in a thread of its own.

    A thread and a queue, and nothing between: each switch of task or thread would add to the write itself, which takes a good disk
    a tenth of a millisecond.
    """

    def __init__(self, state_dir: Path, current: Callable[[], Checkpoint]) -> None:
        self._path = str(state_dir)
        self._current = current
        self._loop = asyncio.get_running_loop()
        # requests so far; those that the write under way includes; those that are on disk
        self._requested = self._writing = self._written = 0
        self._is_busy = self._is_failing = self._is_whole_requested = False
        self._waiting: list[asyncio.Future[None]] = []
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self._store = CheckpointStore(state_dir)
        # a state, and whether the whole file is to be written; None ends the thread
        self._jobs: SimpleQueue[tuple[Checkpoint, bool] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._has_ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> int:
        """Request a write of the state as it is now or later. Returns a number for flushed()."""
        self._requested += 1
        if not self._is_busy:
            self._is_busy = True
            # not at once: whatever else happens in this turn of the loop goes into the same write
            self._loop.call_soon(self._start)
        return self._requested

    async def flushed(self, number: int) -> None:
        """Wait until the state at that request is on disk."""
        while self._written < number:
            written = self._loop.create_future()
            self._waiting.append(written)
            await written

    async def close(self, timeout_seconds: float) -> None:
        """Write the whole checkpoint if it lacks anything, and end the thread. A disk that hangs is not waited for."""
        if self._requested == 0:
            return
        self._is_whole_requested = True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.flushed(self.request())
                self._jobs.put(None)
                await self._has_ended.wait()
        except TimeoutError:
            log.error("the last checkpoint was not written", extra={"path": self._path})
            self._jobs.put(None)
        finally:
            self._stop_timer()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="checkpoint", daemon=True)
            self._thread.start()
        self._writing = self._requested
        # taken with the job: a request for the whole file while the job is under way is for the state after it
        whole, self._is_whole_requested = self._is_whole_requested, False
        self._jobs.put((replace(self._current(), boot_id=self._boot_id), whole))

    def _work(self) -> None:
        """In the thread."""
        while (job := self._jobs.get()) is not None:
            error: Exception | None = None
            try:
                self._store.save(job[0], whole=job[1])
            except Exception as exc:
                error = exc
            self._call(partial(self._failed, error) if error else partial(self._saved, is_whole=self._store.is_whole))
        self._store.close()
        self._call(self._has_ended.set)

    def _call(self, callback: Callable[[], None]) -> None:
        # the loop is closed when the process could not wait any longer
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _failed(self, error: Exception) -> None:
        if not self._is_failing:
            extra = {"path": self._path, "error": getattr(error, "strerror", None) or repr(error)}
            log.error(
                "cannot write the checkpoint; retrying, and publishing nothing new until it succeeds", extra=extra
            )
        self._is_failing = True
        self._loop.call_later(_RETRY_SECONDS, self._start)

    def _saved(self, *, is_whole: bool) -> None:
        self._is_failing = False
        self._written = self._writing
        waiting, self._waiting = self._waiting, []
        for written in waiting:
            if not written.done():
                written.set_result(None)
        if is_whole:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self._loop.call_later(WHOLE_AFTER_SECONDS, self._request_whole)
        self._is_busy = self._written < self._requested
        if self._is_busy:
            self._loop.call_later(0 if is_whole else _GATHER_SECONDS, self._start)

    def _request_whole(self) -> None:
        self._timer = None
        self._is_whole_requested = True
        self.request()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
