"""What one process writes: a line in the journal for each change, and now and then the checkpoint whole.

Everything here blocks and is called from one thread at a time. Whatever happens in between, a kill at any step included, what
is read back is a state that was to be saved, and none older than the last one that was.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import Encoder, encode
from nodedevice_agent.checkpoint.journal import difference, encode_line
from nodedevice_agent.checkpoint.journal_file import Journal, path_beside
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt, JournalMark

log = logging.getLogger(__name__)


class CheckpointStore:
    """is_whole: the checkpoint's file holds everything that was saved; nothing of it is in the journal alone."""

    def __init__(self, state_dir: Path) -> None:
        self.is_whole = True
        self._path = state_dir / checkpoint_file.FILE_NAME
        # one's own for each process: lines that another one left behind are told by it
        self._mark = JournalMark(uuid4().hex, 0)
        # what is read back now; None where that is not known, and before the first write
        self._saved: Checkpoint | None = None
        self._journal: Journal | None = None
        self._encoder = Encoder()
        self._has_warned = False

    def save(self, checkpoint: Checkpoint, *, whole: bool = False) -> None:
        """On disk when it returns: in the journal, or as the whole file. Raises OSError or ValueError.

        After an error it is not known whether it is on disk.
        """
        if self._saved is not None:
            change = difference(self._saved, checkpoint)
            if change is None and (self.is_whole or not whole):
                return
            if change is not None and not whole and self._journal is not None:
                line = encode_line(self._next(), change)
                if self._append(self._journal, line):
                    self._saved, self.is_whole = checkpoint, False
                    return
        self._save_whole(checkpoint)

    def close(self) -> None:
        """Leave nothing but the checkpoint where it holds everything."""
        if self._journal is None:
            return
        # a journal that stays has lines that the checkpoint knows to hold
        with suppress(OSError):
            if self.is_whole and self._saved is not None:
                self._journal.remove()
            else:
                self._journal.close()
        self._journal = None

    def _next(self) -> JournalMark:
        self._mark = replace(self._mark, sequence=self._mark.sequence + 1)
        return self._mark

    def _append(self, journal: Journal, line: bytes) -> bool:
        """False where there is no room, or the file has failed and is given up."""
        if not journal.fits(line):
            return False
        try:
            with metrics.JOURNAL_SECONDS.time():
                journal.append(line)
        except OSError as exc:
            self._warn(exc)
            self._journal = None
            with suppress(OSError):
                journal.close()
            return False
        self._has_warned = False
        return True

    def _save_whole(self, checkpoint: Checkpoint) -> None:
        # until it has worked, no line may go on from what may or may not be on disk
        self._saved = None
        marked = replace(checkpoint, journal=self._next())
        with metrics.CHECKPOINT_SECONDS.time():
            checkpoint_file.write(self._path, self._encoder.encode(marked))
        self._saved, self.is_whole = checkpoint, True
        self._empty_journal()

    def _empty_journal(self) -> None:
        """Lines that stay in it do no harm: the checkpoint holds them."""
        try:
            if self._journal is None:
                self._journal = Journal(self._path)
            else:
                self._journal.reset()
        except OSError as exc:
            self._warn(exc)
            if self._journal is not None:
                with suppress(OSError):
                    self._journal.close()
            self._journal = None

    def _warn(self, exc: OSError) -> None:
        if not self._has_warned:
            extra = {"file": str(path_beside(self._path)), "error": exc.strerror or str(exc)}
            log.warning("checkpoint journal cannot be written; the whole checkpoint is written each time", extra=extra)
        self._has_warned = True


def fold(state_dir: Path) -> None:
    """Make the checkpoint whole that an earlier process left with a journal. Raises OSError."""
    path = state_dir / checkpoint_file.FILE_NAME
    journal = path_beside(path)
    if not journal.exists():
        return
    try:
        found = checkpoint_file.read(state_dir)
    except CheckpointCorrupt:
        # the next start looks into it, and says so
        return
    if found is not None:
        checkpoint_file.write(path, encode(found))
        journal.unlink()
