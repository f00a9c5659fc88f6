"""What one process writes: a line in the journal for each change, and once in a while the whole checkpoint.

Everything here blocks and runs in one thread at a time. Whatever happens in between, a kill at any step included, what is read back
is a state that was passed to save(), and none older than the last one that save() returned for.
"""

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint import files
from nodedevice_agent.checkpoint.format import Encoder
from nodedevice_agent.checkpoint.journal import encode_change
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint, JournalMark

log = logging.getLogger(__name__)

# Some hundred pods; a big response of a plugin is a line of some KiB.
JOURNAL_BYTES = 256 * 1024


class Journal:
    """The journal's file, open and empty. All its zeros are on disk already, so that a line costs one flush of data: a file that
    grows has its size and its blocks written too, at several times the cost. Each method may block and raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self.used = 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._put(bytes(JOURNAL_BYTES))
            os.fsync(self._descriptor)
            files.sync_directory(path.parent)
        except OSError:
            self.close()
            raise

    def append(self, line: bytes) -> None:
        """On disk when it returns. After an error the content of the file is unknown: close it."""
        self._put(line)
        os.fdatasync(self._descriptor)
        self.used += len(line)

    def close(self) -> None:
        os.close(self._descriptor)

    def _put(self, octets: bytes) -> None:
        unwritten, position = memoryview(octets), self.used
        while unwritten:
            written = os.pwrite(self._descriptor, unwritten, position)
            unwritten, position = unwritten[written:], position + written


class CheckpointStore:
    """is_whole: the checkpoint's file includes everything that was saved; nothing of it is in the journal alone."""

    def __init__(self, state_dir: Path) -> None:
        self.is_whole = True
        self._path = state_dir / files.FILE_NAME
        # a generation for each process, so that lines of an earlier one are recognized
        self._mark = JournalMark(uuid4().hex, 0)
        # what would be read back now; None where that is not known, and before the first write
        self._saved: Checkpoint | None = None
        self._journal: Journal | None = None
        self._encoder = Encoder()
        self._has_warned = False

    def save(self, checkpoint: Checkpoint, *, whole: bool = False) -> None:
        """On disk when it returns: in the journal, or as the whole file. After OSError it is unknown whether it is."""
        mark = replace(self._mark, sequence=self._mark.sequence + 1)
        if self._saved is not None:
            line = encode_change(self._saved, checkpoint, mark)
            if line is None and (self.is_whole or not whole):
                return
            if line is not None and not whole and self._append(line, mark):
                self._saved, self.is_whole = checkpoint, False
                return
        self._save_whole(checkpoint)

    def close(self) -> None:
        """Leave only the checkpoint if it includes everything; a journal that stays does no harm."""
        with suppress(OSError):
            if self._journal is not None:
                self._journal.close()
                if self.is_whole and self._saved is not None:
                    files.journal_path(self._path).unlink(missing_ok=True)
        self._journal = None

    def _append(self, line: bytes, mark: JournalMark) -> bool:
        """False where there is no room, or the file has failed and is given up."""
        if self._journal is None or self._journal.used + len(line) > JOURNAL_BYTES:
            return False
        self._mark = mark
        try:
            with metrics.JOURNAL_SECONDS.time():
                self._journal.append(line)
        except OSError as exc:
            self._give_up_journal(exc)
            return False
        self._has_warned = False
        return True

    def _save_whole(self, checkpoint: Checkpoint) -> None:
        # until it has succeeded, no line may continue from a state that may not be on disk
        self._saved = None
        self._mark = replace(self._mark, sequence=self._mark.sequence + 1)
        with metrics.CHECKPOINT_SECONDS.time():
            files.write(self._path, self._encoder.encode(replace(checkpoint, journal=self._mark)))
        self._saved, self.is_whole = checkpoint, True
        # the lines in it are included in the checkpoint now; they stay until there is no more room
        if self._journal is None or self._journal.used > JOURNAL_BYTES // 2:
            try:
                if self._journal is not None:
                    self._journal.close()
                self._journal = None
                self._journal = Journal(files.journal_path(self._path))
            except OSError as exc:
                self._give_up_journal(exc)

    def _give_up_journal(self, exc: OSError) -> None:
        if self._journal is not None:
            with suppress(OSError):
                self._journal.close()
        self._journal = None
        if not self._has_warned:
            extra = {"path": str(files.journal_path(self._path)), "error": exc.strerror or str(exc)}
            log.warning("cannot write the checkpoint journal; writing the whole checkpoint at each change", extra=extra)
        self._has_warned = True
