"""Writes the checkpoint in the background, off the event loop, one write at a time: many changes become one write.

A change goes into the journal at once, as a line. The whole file follows within a second, and includes later changes. A change of
health alone has no line, and the whole file follows within ten seconds: a restart uses only the names of the resources.

After a kill at any step, the next start reads a state that was passed to save(), and none older than the last one that save()
returned for.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from uuid import uuid4

from msgspec import structs
from nodedevice_common import threads

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint.files import FILE_NAME, MAX_BYTES, journal_path
from nodedevice_agent.checkpoint.format import Encoder
from nodedevice_agent.checkpoint.journal import encode_change
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, JournalMark
from nodedevice_agent.lib import filesystem

log = logging.getLogger(__name__)

# Some hundred pods; a big response of a plugin is a line of some KiB.
JOURNAL_BYTES = 256 * 1024
_RETRY_SECONDS = 1.0
# A request during the write of a line is one of many: the next write waits for more of them. A single request does not wait.
_GATHER_SECONDS = 0.002
# At most one whole write a second, and the file alone is never older than that, but for the health of devices.
WHOLE_AFTER_SECONDS = 1.0
HEALTH_AFTER_SECONDS = 10.0


class CheckpointWriter:
    """Writes what `current` returns after each request, in a thread of its own. A thread and a queue, and nothing between: each
    switch of task or thread would add to the write itself, which takes a good disk a tenth of a millisecond.

    problem: why the whole file cannot be written, and what that means; empty while it can. on_problem: called when that changes.
    """

    def __init__(
        self, state_dir: Path, current: Callable[[], Checkpoint], on_problem: Callable[[], None] = lambda: None
    ) -> None:
        self.problem = ""
        self._on_problem = on_problem
        self._path = str(state_dir)
        self._current = current
        self._loop = asyncio.get_running_loop()
        # numbers of requests: so far; included in the current write; on disk
        self._requested = self._writing = self.written = 0
        self._is_busy = self._is_failing = self._is_whole_requested = False
        # replaced with each write
        self._has_written = asyncio.Event()
        self._boot_id = filesystem.boot_id()
        self._store = CheckpointStore(state_dir)
        # a state, and whether the whole file is to be written; None ends the thread
        self._jobs: SimpleQueue[tuple[Checkpoint, bool] | None] = SimpleQueue()
        self._has_thread = False
        self._has_ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> int:
        """Request a write of the current or a later state. Returns a number for flushed()."""
        self._requested += 1
        if not self._is_busy:
            self._is_busy = True
            # not at once: further changes in this turn of the loop go into the same write
            self._loop.call_soon(self._start)
        return self._requested

    async def flushed(self, number: int) -> None:
        """Wait until the state at that request is on disk, apart from the health of devices."""
        while self.written < number:
            await self._has_written.wait()

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
        try:
            self._begin()
        except Exception as exc:
            # the next attempt may succeed after any error; without it nothing would ever be written again
            self._failed(exc)

    def _begin(self) -> None:
        state = structs.replace(self._current(), boot_id=self._boot_id)
        self._writing = self._requested
        if not self._is_whole_requested and self._store.has_all_but_health(state):
            self._saved(is_whole=self._store.is_whole)
            return
        if not self._has_thread:
            threads.start(self._work, "checkpoint")
            self._has_thread = True
        # taken with the job: a request for the whole file while the job is under way is for the state after it
        whole, self._is_whole_requested = self._is_whole_requested, False
        self._jobs.put((state, whole))

    def _work(self) -> None:
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
        reason = getattr(error, "strerror", None) or repr(error)
        self._report(f"cannot write {self._path}: {reason}; no new allocation is published until that succeeds")
        if not self._is_failing:
            message = "cannot write the checkpoint; retrying, and publishing nothing new until it succeeds"
            log.error(message, extra={"path": self._path, "error": reason})
        self._is_failing = True
        # the failed job may have been for the whole file
        self._is_whole_requested = True
        self._loop.call_later(_RETRY_SECONDS, self._start)

    def _saved(self, *, is_whole: bool) -> None:
        self._is_failing = False
        self._report(self._store.problem)
        self.written = self._writing
        self._has_written.set()
        self._has_written = asyncio.Event()
        if is_whole:
            self._stop_timer()
        elif self._store.problem:
            self._request_whole_in(_RETRY_SECONDS)
        else:
            self._request_whole_in(WHOLE_AFTER_SECONDS if self._store.has_lines else HEALTH_AFTER_SECONDS)
        self._is_busy = self.written < self._requested
        if self._is_busy:
            self._loop.call_later(0 if is_whole else _GATHER_SECONDS, self._start)

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            metrics.CHECKPOINT_FAILING.set(bool(problem))
            self._on_problem()

    def _request_whole_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > at:
            self._stop_timer()
            self._timer = self._loop.call_at(at, self._request_whole)

    def _request_whole(self) -> None:
        self._timer = None
        self._is_whole_requested = True
        self.request()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


class CheckpointStore:
    """A line in the journal for each change, and once in a while the whole file. Its methods block; one thread at a time calls
    them.

    is_whole: the file includes everything that was saved, and later changes of health. has_lines: only the journal has some
    changes. problem: why the last attempt to write the file failed, while the journal continues.
    """

    def __init__(self, state_dir: Path) -> None:
        self.is_whole = True
        self.has_lines = False
        self.problem = ""
        self._path = state_dir / FILE_NAME
        # a generation for each process, so that lines of an earlier one are recognized
        self._mark = JournalMark(uuid4().hex, 0)
        # the state that would be read back now; None if unknown, and before the first write
        self._saved: Checkpoint | None = None
        self._journal: Journal | None = None
        self._encoder = Encoder()
        # files that cannot be written, as logged
        self._warned: set[Path] = set()

    def has_all_but_health(self, checkpoint: Checkpoint) -> bool:
        """Whether the disk has everything except changes of health. Clears is_whole if health differs."""
        saved = self._saved
        if saved is None or checkpoint.registered.keys() != saved.registered.keys():
            return False
        if structs.replace(checkpoint, registered=saved.registered) != saved:
            return False
        self.is_whole = self.is_whole and checkpoint.registered == saved.registered
        return True

    def save(self, checkpoint: Checkpoint, *, whole: bool = False) -> None:
        """Save the state, in the journal or as the whole file. After OSError it is unknown whether it is saved. While the whole
        file cannot be written, the journal continues while it has room.
        """
        mark, line = self._next_mark(), None
        before = self._saved
        if before is not None and _listed_octets(before, checkpoint) > JOURNAL_BYTES:
            # no line has room for the change, and this one may have as many megabytes as the file
            before = None
        if before is not None:
            line = encode_change(before, checkpoint, mark)
            if line is None and (self.is_whole or not whole):
                return
            if line is not None and not whole and self._append(line, mark):
                self._saved, self.is_whole, self.has_lines = checkpoint, False, True
                return
        try:
            self._replace(checkpoint)
        except filesystem.NotReplaced as exc:
            if before is None or not (line is None or self._append(line, mark)):
                raise
            self._saved, self.is_whole = checkpoint, False
            self.has_lines = self.has_lines or line is not None
            reason = exc.strerror or str(exc)
            self.problem = (
                f"cannot write {self._path}: {reason}; its journal has the changes while there is room: make room soon"
            )
            self._warn("cannot write the checkpoint; its journal has the changes while there is room", self._path, exc)

    def _replace(self, checkpoint: Checkpoint) -> None:
        """Write the whole file. After NotReplaced the disk is unchanged."""
        before = self._saved, self._mark
        # until it has succeeded, no line may continue from a state that may not be on disk
        self._saved, self._mark = None, self._next_mark()
        try:
            with metrics.CHECKPOINT_SECONDS.time():
                text = self._encoder.encode(structs.replace(checkpoint, journal=self._mark))
                # the next start would refuse it
                filesystem.check_size(self._path, text, MAX_BYTES)
                filesystem.replace_durably(self._path, text)
        except filesystem.NotReplaced:
            self._saved, self._mark = before
            raise
        self._saved, self.is_whole, self.has_lines = checkpoint, True, False
        self.problem = ""
        self._warned.discard(self._path)
        # the checkpoint includes its lines now; they stay until the room is used up
        if self._journal is None or self._journal.used > JOURNAL_BYTES // 2:
            self._empty_journal()

    def _next_mark(self) -> JournalMark:
        return structs.replace(self._mark, sequence=self._mark.sequence + 1)

    def close(self) -> None:
        """Leave only the checkpoint if it includes everything; a journal that stays does no harm."""
        with suppress(OSError):
            if self._close_journal() and self.is_whole and self._saved is not None:
                journal_path(self._path).unlink(missing_ok=True)

    def _append(self, line: bytes, mark: JournalMark) -> bool:
        """False without room or a file to continue, or if the journal has failed and is closed."""
        if self._journal is None or self._journal.used + len(line) > JOURNAL_BYTES or not os.path.exists(self._path):
            return False
        self._mark = mark
        try:
            with metrics.JOURNAL_SECONDS.time():
                self._journal.append(line)
        except OSError as exc:
            self._give_up_journal(exc)
            # the line may be on disk, or not
            self._saved = None
            return False
        self._warned.discard(self._journal.path)
        return True

    def _empty_journal(self) -> None:
        try:
            self._close_journal()
            self._journal = Journal(journal_path(self._path))
        except OSError as exc:
            self._give_up_journal(exc)

    def _give_up_journal(self, exc: OSError) -> None:
        with suppress(OSError):
            self._close_journal()
        message = "cannot write the checkpoint journal; writing the whole checkpoint at each change"
        self._warn(message, journal_path(self._path), exc)

    def _warn(self, message: str, path: Path, exc: OSError) -> None:
        """Once, until this file has been written again."""
        if path not in self._warned:
            log.warning(message, extra={"path": str(path), "error": exc.strerror or str(exc)})
        self._warned.add(path)

    def _close_journal(self) -> bool:
        """Whether there was one."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()
        return journal is not None


def _listed_octets(before: Checkpoint, after: Checkpoint) -> int:
    """The size of changed device lists in a journal's line, without escapes."""
    found = ((before.registered.get(name), ids) for name, ids in after.registered.items())
    # each ID with two quotation marks and a comma
    return sum(sum(map(len, ids)) + 3 * len(ids) for earlier, ids in found if earlier is not ids and earlier != ids)


class Journal:
    """The journal's file, open and empty. All its zeros are on disk already, so that a line costs one flush of data: a file that
    grows has its size and its blocks written too, at several times the cost. Each method may block and raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used = 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._put(bytes(JOURNAL_BYTES))
            os.fsync(self._descriptor)
            filesystem.sync_directory(path.parent)
        except OSError:
            self.close()
            raise

    def append(self, line: bytes) -> None:
        """Write a line to the disk. After an error the content of the file is unknown: close it."""
        self._put(line)
        os.fdatasync(self._descriptor)
        # a removed file still accepts lines, which are lost
        if not os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):
            raise OSError(errno.ESTALE, "another file is in its place", str(self.path))
        self.used += len(line)

    def close(self) -> None:
        os.close(self._descriptor)

    def _put(self, octets: bytes) -> None:
        unwritten, position = memoryview(octets), self.used
        while unwritten:
            written = os.pwrite(self._descriptor, unwritten, position)
            unwritten, position = unwritten[written:], position + written
