"""Files that should be there, read without trust: somebody else may have put anything in their place."""

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most_bytes: int) -> bytes:
    """All of a file. Raises OSError: also for one that is bigger, or no regular file; a FIFO would never be read to its end."""
    # opening a FIFO waits for a writer unless it is told not to
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size <= most_bytes:
            with open(descriptor, "rb", closefd=False) as file:
                octets = file.read(most_bytes + 1)
            if len(octets) <= most_bytes:
                return octets
        raise OSError(errno.EFBIG, f"bigger than {most_bytes} bytes", str(path))
    finally:
        os.close(descriptor)
