"""Unix sockets of processes other than the agent and its plugins."""

import socket
from pathlib import Path


def listening(path: Path, backlog: int = 1) -> socket.socket:
    """Served until closed; its file stays."""
    served = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    served.bind(str(path))
    served.listen(backlog)
    return served


def left_behind(path: Path) -> None:
    """A socket without a process."""
    listening(path).close()
