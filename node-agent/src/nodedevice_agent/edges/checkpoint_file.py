"""The checkpoint on disk: read once, written in the background by one writer, whole or not at all.

Many changes become one write; temp file, fsync, rename, fsync of the folder, off the event loop.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from nodedevice_agent.core.checkpoint import Checkpoint, CheckpointCorrupt, Encoder, decode
from nodedevice_agent.edges import metrics

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RETRY_SECONDS = 1.0


def read(state_dir: Path) -> Checkpoint | None:
    """What stands on disk; None where there is no file. Raises CheckpointCorrupt, also for a file that cannot be read."""
    try:
        return decode((state_dir / FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise CheckpointCorrupt(str(exc)) from exc


def set_aside(state_dir: Path) -> Path:
    """Keep an unreadable file for whoever looks into it, under a name of its own. Returns where it is now."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = state_dir / f"{FILE_NAME}.unreadable-{stamp}"
    os.replace(state_dir / FILE_NAME, aside)
    return aside


class CheckpointWriter:
    """Writes what `current` returns whenever it was asked to, one write at a time, in a thread of its own.

    A thread and a queue, and nothing between: each change of task or of thread would stand beside the write itself, which a
    good disk does in half a millisecond.
    """

    def __init__(self, state_dir: Path, current: Callable[[], Checkpoint]) -> None:
        self.is_failing = False
        self._state_dir = state_dir
        self._current = current
        self._loop = asyncio.get_running_loop()
        # requests so far; those that the write under way answers; those that are on disk
        self._wanted = self._writing = self._written = 0
        self._is_busy = False
        self._waiting: list[asyncio.Future[None]] = []
        self._encoder = Encoder()
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self._jobs: SimpleQueue[Checkpoint | None] = SimpleQueue()
        self._thread: Thread | None = None

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
        """The last write, if one is owed, and the end of the thread. A disk that takes nothing is not waited for."""
        try:
            async with asyncio.timeout(patience_seconds):
                await self.flushed(self._wanted)
        except TimeoutError:
            log.error("the last checkpoint was not written", extra={"directory": str(self._state_dir)})
        self._jobs.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="checkpoint", daemon=True)
            self._thread.start()
        self._writing = self._wanted
        self._jobs.put(replace(self._current(), boot_id=self._boot_id))

    def _work(self) -> None:
        """In the thread."""
        while (checkpoint := self._jobs.get()) is not None:
            failure: Exception | None = None
            try:
                with metrics.CHECKPOINT_SECONDS.time():
                    write(self._state_dir / FILE_NAME, self._encoder.encode(checkpoint))
            except Exception as exc:
                failure = exc
            # the loop is closed when the process could not wait any longer
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, failure)

    def _done(self, failure: Exception | None) -> None:
        if failure is not None:
            if not self.is_failing:
                log.error(
                    "checkpoint cannot be written; trying again, and nothing new is published until it is",
                    extra={"directory": str(self._state_dir), "error": getattr(failure, "strerror", repr(failure))},
                )
            self.is_failing = True
            self._loop.call_later(_RETRY_SECONDS, self._start)
            return
        self.is_failing = False
        self._written = self._writing
        waiting, self._waiting = self._waiting, []
        for written in waiting:
            if not written.done():
                written.set_result(None)
        self._is_busy = self._written < self._wanted
        if self._is_busy:
            self._start()


def write(path: Path, text: str) -> None:
    """Replace the file durably: whoever reads it finds the old text or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # no file object: it would take a fifth of the time that the disk takes
        unwritten = memoryview(text.encode("utf-8"))
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
