"""Writes the checkpoint in the background, one write at a time: many changes become one write, off the event loop.

A change goes into the journal at once; the whole file follows after a pause, in which more changes come.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from nodedevice_agent.checkpoint.store import CheckpointStore, fold
from nodedevice_agent.devicemanager.state import Checkpoint

log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RETRY_SECONDS = 1.0
# Who asks while a line is being written is one of many: the next one waits for more of them. Who comes alone does not wait.
_GATHER_SECONDS = 0.002
# At most one whole write a second, and whoever reads the file alone sees nothing older.
WHOLE_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Job:
    checkpoint: Checkpoint
    whole: bool


class CheckpointWriter:
    """Writes what `current` returns whenever it was asked to, one write at a time, in a thread of its own.

    A thread and a queue, and nothing between: each change of task or of thread would stand beside the write itself, which a
    good disk does in a tenth of a millisecond.
    """

    def __init__(self, state_dir: Path, current: Callable[[], Checkpoint]) -> None:
        self.is_failing = False
        self._state_dir = state_dir
        self._current = current
        self._loop = asyncio.get_running_loop()
        # requests so far; those that the write under way answers; those that are on disk
        self._wanted = self._writing = self._written = 0
        self._is_busy = False
        self._is_whole_wanted = False
        self._waiting: list[asyncio.Future[None]] = []
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self._store = CheckpointStore(state_dir)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._has_ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> int:
        """Ask for a write of the state as it is now or later. Returns a number for flushed()."""
        self._wanted += 1
        if not self._is_busy:
            self._is_busy = True
            # not at once: what else happens in this turn of the loop goes into the same write
            self._loop.call_soon(self._start)
        return self._wanted

    async def flushed(self, number: int) -> None:
        """Wait until the state at that request is on disk."""
        while self._written < number:
            written = self._loop.create_future()
            self._waiting.append(written)
            await written

    async def close(self, patience_seconds: float) -> None:
        """The whole checkpoint, if anything is not in it, and the end of the thread.

        A disk that takes nothing is not waited for.
        """
        try:
            async with asyncio.timeout(patience_seconds):
                if self._thread is None and self._wanted == 0:
                    await asyncio.to_thread(fold, self._state_dir)
                    return
                self._is_whole_wanted = True
                await self.flushed(self.request())
                self._jobs.put(None)
                await self._has_ended.wait()
        except (TimeoutError, OSError):
            log.error("the last checkpoint was not written", extra={"directory": str(self._state_dir)})
            self._jobs.put(None)
        finally:
            self._stop_timer()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="checkpoint", daemon=True)
            self._thread.start()
        self._writing = self._wanted
        # taken with the job: who wants it while the job is under way wants what comes after it
        whole, self._is_whole_wanted = self._is_whole_wanted, False
        self._jobs.put(_Job(replace(self._current(), boot_id=self._boot_id), whole))

    def _work(self) -> None:
        """In the thread."""
        while (job := self._jobs.get()) is not None:
            failure: Exception | None = None
            try:
                self._store.save(job.checkpoint, whole=job.whole)
            except Exception as exc:
                failure = exc
            self._tell(partial(self._done, failure, is_whole=self._store.is_whole))
        self._store.close()
        self._tell(self._has_ended.set)

    def _tell(self, what: Callable[[], None]) -> None:
        # the loop is closed when the process could not wait any longer
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what)

    def _done(self, failure: Exception | None, *, is_whole: bool) -> None:
        if failure is not None:
            self._say_failing(failure)
            self._loop.call_later(_RETRY_SECONDS, self._start)
            return
        self.is_failing = False
        self._written = self._writing
        waiting, self._waiting = self._waiting, []
        for written in waiting:
            if not written.done():
                written.set_result(None)
        if is_whole:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self._loop.call_later(WHOLE_AFTER_SECONDS, self._want_whole)
        self._is_busy = self._written < self._wanted
        if self._is_busy:
            self._loop.call_later(0 if is_whole else _GATHER_SECONDS, self._start)

    def _want_whole(self) -> None:
        self._timer = None
        self._is_whole_wanted = True
        self.request()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _say_failing(self, failure: Exception) -> None:
        if not self.is_failing:
            log.error(
                "checkpoint cannot be written; trying again, and nothing new is published until it is",
                extra={"directory": str(self._state_dir), "error": getattr(failure, "strerror", repr(failure))},
            )
        self.is_failing = True
