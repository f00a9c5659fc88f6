"""The state directory on disk: its lock, and the checkpoint with its journal.

The checkpoint is restored at the start, replaced whole or not at all, and kept aside when it is invalid.
"""

import errno
import logging
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from msgspec import structs

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint.format import check_possible, decode, encode
from nodedevice_agent.checkpoint.journal import replayed
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError, StateDirectoryUsed
from nodedevice_agent.lib import filesystem

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.json"
ID_FILE_NAME = "agent-id"
_ID = re.compile("[0-9a-f]{32}")
# another name than the plugin directory's lock has: both may be the same directory
_LOCK = ".nodedevice-agent.state.lock"
# Some thousand containers with responses of several KiB each, and the IDs of some hundred thousand devices. A bigger file needs
# more memory than an agent has; its content is recovered from the API.
MAX_BYTES = 64 * 1024 * 1024
# while an agent writes, each attempt may meet another write; there is one a second
_ATTEMPTS = 5


def make_state_dir(state_dir: Path) -> None:
    """Create the state directory with mode 0750 if it is missing. Raises AgentSettingsError."""
    try:
        state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as exc:
        raise _unusable(state_dir, exc) from exc


@contextmanager
def locked_state_dir(state_dir: Path) -> Iterator[None]:
    """Lock the state directory for this process: two writers of one checkpoint would overwrite each other's changes. Readers need
    no lock. Raises StateDirectoryUsed, and AgentSettingsError if no file can be created in it.
    """
    try:
        lock = filesystem.lock(state_dir / _LOCK)
    except BlockingIOError as exc:
        raise StateDirectoryUsed(str(state_dir)) from exc
    except OSError as exc:
        raise _unusable(state_dir, exc) from exc
    try:
        yield
    finally:
        os.close(lock)


def agent_id(state_dir: Path) -> str:
    """Identifies this directory's agent among agents with the same node name: 32 hexadecimal digits. Made once, or at each start if
    it cannot be written.
    """
    path = state_dir / ID_FILE_NAME
    with suppress(OSError, UnicodeDecodeError):
        if match := _ID.fullmatch(path.read_text(encoding="ascii").strip()):
            return match[0]
    made = uuid.uuid4().hex
    try:
        filesystem.replace_durably(path, f"{made}\n")
    except OSError as exc:
        log.warning("cannot write the agent's ID; the next start waits for the lease", extra={"error": str(exc)})
    return made


def _unusable(state_dir: Path, error: OSError) -> AgentSettingsError:
    return AgentSettingsError(
        f"--state-dir {state_dir} cannot be used: {error.strerror}; make it writable or give another"
    )


def restore(state_dir: Path) -> tuple[Checkpoint | None, str]:
    """Returns the state to start from, or None without a usable checkpoint: allocations are then recovered from the API. The text,
    for a condition's message, is why an existing checkpoint is not used. An invalid one is kept aside and logged. Raises
    AgentSettingsError.
    """
    path = state_dir / FILE_NAME
    try:
        checkpoint = read(state_dir)
    except CheckpointCorrupt as exc:
        aside = set_aside(state_dir)
        metrics.CHECKPOINT_UNREADABLE.set(1)
        extra = {"error": str(exc), "path": str(aside)}
        log.error("invalid checkpoint; recovering allocations from the API", extra=extra)
        why = f"it is kept as {aside.name}, and allocations were recovered from the API"
        return None, f"invalid checkpoint ({exc}); {why}"
    # without a file this is the first start here, or the state directory was lost with everything in it: the API knows which
    if checkpoint is not None:
        log.info("checkpoint restored", extra={"allocations": len(checkpoint.allocations)})
        if checkpoint.boot_id != filesystem.boot_id():
            # no process of before is alive
            checkpoint = structs.replace(checkpoint, unlisted=())
        if os.path.exists(journal_path(path)):
            # the first write reports a disk that cannot be written; until then the journal has the missing changes
            with suppress(OSError):
                text = encode(checkpoint)
                filesystem.check_size(path, text, MAX_BYTES)
                filesystem.replace_durably(path, text)
                journal_path(path).unlink()
    return checkpoint, ""


def read(state_dir: Path) -> Checkpoint | None:
    """The checkpoint with its journal, or None if the file is missing. Raises CheckpointCorrupt, also for an unreadable file."""
    try:
        content, journal = read_both(state_dir / FILE_NAME)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise CheckpointCorrupt(str(exc)) from exc
    found = replayed(decode(content), journal)
    check_possible(found)
    return found


def read_both(path: Path) -> tuple[bytes, bytes]:
    """A checkpoint and its journal, consistent even while an agent writes them. Raises OSError."""
    before = None
    for _ in range(_ATTEMPTS):
        # an older checkpoint does not go with an emptied journal, and a line may be read while half of it is written
        content = read_regular(path), _read_journal(path)
        if content == before:
            break
        before = content
    return content


def _read_journal(checkpoint: Path) -> bytes:
    with suppress(FileNotFoundError):
        return read_regular(journal_path(checkpoint))
    return b""


def read_regular(path: Path) -> bytes:
    """All of a file. Raises OSError, also for one over MAX_BYTES or no regular file: a FIFO would never be read to its end."""
    with open_regular(path, MAX_BYTES) as file:
        octets = file.read(MAX_BYTES + 1)
    if len(octets) > MAX_BYTES:
        raise _too_big(path, MAX_BYTES)
    return octets


@contextmanager
def open_regular(path: Path, most: int) -> Iterator[BinaryIO]:
    """Open a regular file of at most so many bytes. Raises OSError, also for any other kind of file."""
    # opening a FIFO waits for a writer unless it is opened without blocking
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > most:
            raise _too_big(path, most)
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _too_big(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"bigger than {most} bytes", str(path))


def journal_path(checkpoint: Path) -> Path:
    """The journal of a checkpoint, also of one that was set aside."""
    return checkpoint.with_name(f"{checkpoint.name}.journal")


def set_aside(state_dir: Path) -> Path:
    """Keep an invalid checkpoint and its journal for inspection. Returns its new path. Raises AgentSettingsError."""
    path = state_dir / FILE_NAME
    aside = state_dir / f"{FILE_NAME}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    # in this order: a checkpoint without its journal would be valid, a journal without its checkpoint is ignored
    try:
        os.replace(path, aside)
        if os.path.exists(journal_path(path)):
            os.replace(journal_path(path), journal_path(aside))
    except OSError as exc:
        raise AgentSettingsError(
            f"--state-dir {state_dir}: {exc.filename} is invalid and cannot be moved aside: {exc.strerror}; "
            "make the directory writable, or move the file away"
        ) from exc
    return aside
