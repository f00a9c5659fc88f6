"""Whose process is at the other end of a connection on 127.0.0.1, as Linux shows it."""

import os
import socket
import sys
from pathlib import Path
from typing import Final

_TABLES: Final = ("tcp", "tcp6")
_ROOT: Final = 0


def is_own(peer_port: int, port: int, folder: Path = Path("/proc/net")) -> bool:
    """Whether it is of this user, of the one who called sudo, or of root. True where the system does not say."""
    tables = [folder / name for name in _TABLES if (folder / name).exists()]
    if not tables:
        return True
    loopback = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
    ends = f"{loopback}:{peer_port:04X}", f"{loopback}:{port:04X}"
    own = {str(_ROOT), str(os.getuid()), os.environ.get("SUDO_UID", "")}
    # number, this end, other end, state, queues, timer, retries, user, …
    rows = (line.split() for each in tables for line in each.read_text(encoding="ascii").splitlines())
    # an address of IPv6 ends with that of IPv4
    users = {row[7] for row in rows if len(row) > 7 and row[1].endswith(ends[0]) and row[2].endswith(ends[1])}
    return bool(users) and users <= own
