"""The journal's file: room for lines that is on the disk already, so that one more line costs one flush of data.

A file that grows has its size and its blocks written too, at several times the cost. What the lines say is in
core/checkpoint_journal.
"""

import os
from pathlib import Path

from nodedevice_agent.checkpoint.regular_file import read_regular

# Some hundred pods; a big answer of a plugin is a line of some KiB.
SIZE_BYTES = 256 * 1024
# Far above what is ever written, in whatever version.
MOST_BYTES = 64 * 1024 * 1024


def path_beside(checkpoint: Path) -> Path:
    """Where the journal of a checkpoint lies, also of one that was set aside."""
    return checkpoint.with_name(f"{checkpoint.name}.journal")


def read(checkpoint: Path) -> bytes:
    """The journal of a checkpoint; empty where there is none. Raises OSError."""
    try:
        return read_regular(path_beside(checkpoint), MOST_BYTES)
    except FileNotFoundError:
        return b""


class Journal:
    """Open and empty; whatever was in the file is gone. Each of the methods may block and raise OSError."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = path_beside(checkpoint)
        self._used = 0
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._put(bytes(SIZE_BYTES), 0)
            os.fsync(self._descriptor)
            sync_folder(self._path.parent)
        except OSError:
            os.close(self._descriptor)
            raise

    def fits(self, line: bytes) -> bool:
        return self._used + len(line) <= SIZE_BYTES

    def append(self, line: bytes) -> None:
        """On disk when it returns. After an error nobody knows what is in the file: close it."""
        self._put(line, self._used)
        os.fdatasync(self._descriptor)
        self._used += len(line)

    def reset(self) -> None:
        """Empty again."""
        if self._used:
            # the end of the last line first: should a kill leave a piece of it alone, that is none of a line that was whole
            self._put(b"\0", self._used - 1)
        self._put(bytes(self._used), 0)
        os.fdatasync(self._descriptor)
        self._used = 0

    def close(self) -> None:
        os.close(self._descriptor)

    def remove(self) -> None:
        """Close it and take the file away."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _put(self, octets: bytes, position: int) -> None:
        unwritten = memoryview(octets)
        while unwritten:
            written = os.pwrite(self._descriptor, unwritten, position)
            unwritten, position = unwritten[written:], position + written


def sync_folder(folder: Path) -> None:
    """Make what was renamed or created in a folder outlive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
