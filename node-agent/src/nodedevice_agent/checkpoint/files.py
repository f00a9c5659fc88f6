"""The checkpoint on disk, with what its journal adds: read, replaced whole or not at all, set aside when it is not believed."""

import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint import journal_file as checkpoint_journal
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.journal import replayed
from nodedevice_agent.checkpoint.regular_file import read_regular
from nodedevice_agent.checkpoint.validation import refuse_impossible
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import SettingsError

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.json"
# Some thousand containers with answers of several KiB each, and the IDs of some hundred thousand devices. What is bigger costs more
# memory to read than an agent has; it is rebuilt from the API.
MOST_BYTES = 64 * 1024 * 1024
# while an agent writes, each attempt may meet another write; there is one a second
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Restored:
    """checkpoint: None where there is none to start from, so that allocations have to be recovered from the API.

    note: why a checkpoint that was there is not used, for a condition's message; "" otherwise.
    """

    checkpoint: Checkpoint | None
    note: str = ""


def restore(state_dir: Path) -> Restored:
    """The state to start from. An invalid checkpoint is kept aside and logged. Raises SettingsError where it cannot be moved."""
    try:
        checkpoint = read(state_dir)
    except CheckpointCorrupt as exc:
        aside = set_aside(state_dir)
        metrics.CHECKPOINT_UNREADABLE.set(1)
        extra = {"error": str(exc), "path": str(aside)}
        log.error("invalid checkpoint; recovering allocations from the API", extra=extra)
        return Restored(
            None, f"invalid checkpoint ({exc}); it is kept as {aside.name}, and allocations were recovered from the API"
        )
    # without a file this is the first start here, or the state directory was lost with everything in it: the API knows which
    if checkpoint is not None:
        log.info("checkpoint restored", extra={"allocations": len(checkpoint.allocations)})
    return Restored(checkpoint)


def read(state_dir: Path) -> Checkpoint | None:
    """What stands on disk; None where there is no file. Raises CheckpointCorrupt, also for a file that cannot be read."""
    path = state_dir / FILE_NAME
    try:
        content, journal = read_both(path)
        found = replayed(decode(content.decode("utf-8")), journal)
        refuse_impossible(found)
        return found
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise CheckpointCorrupt(str(exc)) from exc


def read_both(path: Path) -> tuple[bytes, bytes]:
    """A checkpoint and its journal, as they belong together also while they are being written. Raises OSError."""
    found = _read_once(path)
    for _ in range(_ATTEMPTS):
        # the journal is emptied after the checkpoint was replaced: an older checkpoint does not go with it. And what is read while
        # a line is written may lack a piece of it
        again = _read_once(path)
        if again == found:
            break
        found = again
    return found


def _read_once(path: Path) -> tuple[bytes, bytes]:
    return read_regular(path, MOST_BYTES), checkpoint_journal.read(path)


def set_aside(state_dir: Path) -> Path:
    """Keep an unreadable file for whoever looks into it, under a name of its own, its journal beside it.

    Returns where it is now. Raises SettingsError where that cannot be done.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    path = state_dir / FILE_NAME
    aside = state_dir / f"{FILE_NAME}.unreadable-{stamp}"
    # in this order: a checkpoint without its journal would be believed, a journal without its checkpoint is not
    try:
        os.replace(path, aside)
        journal = checkpoint_journal.path_beside(path)
        if journal.exists():
            os.replace(journal, checkpoint_journal.path_beside(aside))
    except OSError as exc:
        raise SettingsError(
            f"--state-dir {state_dir}: {exc.filename} cannot be believed, and not be set aside either: {exc.strerror}; "
            "make the directory writable, or move the file away"
        ) from exc
    return aside


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
    checkpoint_journal.sync_folder(path.parent)
