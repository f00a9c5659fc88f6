"""Finds what a way to the nodes needs from this machine: programs in PATH, containerds and their nodes, the user."""

import os
import shutil
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from hack.install import commands
from hack.install.facts import Command, Containerd, Machine
from hack.install.route import PROGRAMS
from tests.cluster.build.binaries import find, missing

_ANSWER_SECONDS = 5.0
_BOOT_ID = "proc/sys/kernel/random/boot_id"
# the kubelet's sources, in its order
_MACHINE_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")


def facts(sockets: Iterable[str]) -> Machine:
    """sockets: possible sockets of a containerd."""
    found = {path: containerd for path in sockets if (containerd := _containerd(path))}
    programs = frozenset(program for program in PROGRAMS if shutil.which(program))
    return Machine(programs, found, _as_root(), _ctr())


def _ctr() -> str:
    """containerd's client: the machine's, or the project's if it is built."""
    return "ctr" if shutil.which("ctr") or missing(["ctr"]) else str(find(["ctr"])["ctr"])


def _as_root() -> Command | None:
    """The prefix of a command that needs root. sudo asks for a password only on a terminal."""
    if os.geteuid() == 0:
        return ()
    if shutil.which("sudo") is None:
        return None
    may = commands.is_terminal() or commands.attempt(["sudo", "--non-interactive", "true"]).returncode == 0
    return ("sudo",) if may else None


def _containerd(path: str) -> Containerd | None:
    """The containerd at this socket; None if nothing responds. A socket that only root may use counts as this machine's
    own.
    """
    root = ""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(path)
            # the listening process may have its own file system and boot ID
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, _, _ = struct.unpack("3i", credentials)
            if pid and os.access(f"/proc/{pid}/root/{_BOOT_ID}", os.R_OK):
                root = f"/proc/{pid}/root"
        except PermissionError:
            root = ""
        except OSError:
            return None
    machine_id = next((text for name in _MACHINE_IDS if (text := _text(f"{root}/{name}"))), "")
    return Containerd(_text(f"{root}/{_BOOT_ID}"), machine_id, root)


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
