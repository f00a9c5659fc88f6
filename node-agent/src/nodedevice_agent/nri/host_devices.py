"""Device files of this host: what a container's device file has to be made like.

Only looks, and looks anew each time: a device that was plugged in again may have another number. A directory stands for all
device files below it, and a link for what it leads to, as a container runtime has it.
Source: containerd pkg/oci/utils_unix.go, getDevices @ v2.4.2.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from nodedevice_agent.devicemanager.runtime import InjectionRefused

# a directory of more is a mistake, such as all of /dev
MAX_NODES = 1024
# of any kind, all of them looked at within a tenth of a second; a /dev has some hundreds, terminals and all
MAX_ENTRIES = 8192
# parts of a /dev that hold no devices to hand on
_PASSED_OVER = frozenset({"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"})


@dataclass(frozen=True, slots=True)
class HostNode:
    """below: its path below the directory that was asked for; empty when it was asked for itself.

    type: c or b. mode: permission bits alone.
    """

    below: str
    type: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


def look_up(host_path: str) -> tuple[HostNode, ...]:
    """The device files at a path. Blocks as long as the file system does. Raises InjectionRefused that names the path."""
    if not host_path.startswith("/") or "\0" in host_path:
        raise InjectionRefused(
            f"device {host_path!r} of the host is no absolute path; the device plugin has to be mended"
        )
    try:
        found = os.stat(host_path)
        if stat.S_ISDIR(found.st_mode):
            nodes = tuple(_Walk(host_path).nodes())
        else:
            nodes = tuple(node for node in [_node("", found)] if node is not None)
    except OSError as exc:
        raise InjectionRefused(
            f"device {host_path} of the host: {exc.strerror}; is it plugged in, and is the host's /dev the agent's too?"
        ) from exc
    if not nodes:
        raise InjectionRefused(f"{host_path} of the host is no device file, and no directory with device files")
    return nodes


class _Walk:
    """Through a directory and those below it, sorted, and ended where there is more than devices can need."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._entries = self._nodes = 0

    def nodes(self) -> Iterator[HostNode]:
        directories = [""]
        while directories:
            below = directories.pop()
            inner = []
            for entry in self._listed(below):
                place = os.path.join(below, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _PASSED_OVER:
                        inner.append(place)
                elif (node := _entry_node(place, entry)) is not None:
                    self._nodes += 1
                    self._bound(self._nodes, MAX_NODES, "device files")
                    yield node
            directories += reversed(inner)

    def _listed(self, below: str) -> list[os.DirEntry[str]]:
        """Not all of a huge directory either: the count goes on while it is read."""
        found = []
        with os.scandir(os.path.join(self._top, below)) as entries:
            for entry in entries:
                self._entries += 1
                self._bound(self._entries, MAX_ENTRIES, "entries")
                found.append(entry)
        return sorted(found, key=lambda entry: entry.name)

    def _bound(self, count: int, most: int, of_what: str) -> None:
        if count > most:
            raise InjectionRefused(
                f"directory {self._top} of the host has more than {most} {of_what}; the device plugin has to name devices"
            )


def _entry_node(place: str, entry: os.DirEntry[str]) -> HostNode | None:
    if entry.name == "console":
        return None
    try:
        return _node(place, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None  # unplugged meanwhile


def _node(below: str, found: os.stat_result) -> HostNode | None:
    """None for what is no device file."""
    if stat.S_ISCHR(found.st_mode):
        kind = "c"
    elif stat.S_ISBLK(found.st_mode):
        kind = "b"
    else:
        return None
    return HostNode(
        below,
        kind,
        os.major(found.st_rdev),
        os.minor(found.st_rdev),
        stat.S_IMODE(found.st_mode) & 0o777,
        found.st_uid,
        found.st_gid,
    )
