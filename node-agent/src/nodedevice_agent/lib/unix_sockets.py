"""What Unix sockets are like as files: how long a path may be, how gRPC is told of it, and whether a process stands behind."""

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

# sun_path, less its closing zero byte
MAX_PATH_BYTES = 107


def is_too_long(path: Path) -> bool:
    """Whether no socket can be bound or dialled at this path."""
    return len(os.fsencode(path)) > MAX_PATH_BYTES


def grpc_target(path: Path) -> str:
    """Where gRPC shall dial or bind. It reads a URI: a `%`, `?` or `#` in a file name would lead it elsewhere."""
    return f"unix:{quote(os.fsencode(path))}"


def is_served(path: Path) -> bool:
    """Whether a living process listens there; the file alone outlives a killed one. Answers at once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            # a full backlog (EAGAIN) has somebody behind it too
            return probe.connect_ex(os.fsencode(path)) in (0, errno.EAGAIN, errno.EINPROGRESS)
        except OSError:
            # a path that is too long is refused before anything is tried
            return False


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """Tells a socket from another one made later at the same path.

    The inode alone does not: file systems use a number again at once. The modification time is that of its bind and
    stays, whatever is connected to it, chmod-ed or renamed.
    """

    device: int
    inode: int
    made_ns: int


def socket_identity(path: Path) -> SocketIdentity | None:
    """Of the file that is there now; None when there is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return SocketIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)
