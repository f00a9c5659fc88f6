"""What Unix sockets are like as files: how long a path may be, how gRPC is told of it, and whether a process stands behind."""

import errno
import os
import socket
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
