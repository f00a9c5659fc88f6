"""Device files of this host: what a container's device file has to be made like.

Only looks, and looks anew each time: a device that was plugged in again may have another number. A directory stands for all
device files below it, and a link for what it leads to, as a container runtime has it.
Source: containerd pkg/oci/utils_unix.go, getDevices @ v2.4.2.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodedevice_agent.core.runtime import InjectionRefused

# a directory of more is a mistake, such as all of /dev
MAX_NODES = 1024
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


def look_up(host_paths: Iterable[str]) -> dict[str, tuple[HostNode, ...]]:
    """The device files at each path. Blocks as long as the file system does. Raises InjectionRefused that names the path."""
    return {path: _nodes(path) for path in host_paths}


def _nodes(host_path: str) -> tuple[HostNode, ...]:
    if not host_path.startswith("/") or "\0" in host_path:
        raise InjectionRefused(
            f"device {host_path!r} of the host is no absolute path; the device plugin has to be mended"
        )
    try:
        found = os.stat(host_path)
        if stat.S_ISDIR(found.st_mode):
            nodes = tuple(_below(Path(host_path), host_path))
        else:
            nodes = tuple(node for node in [_node("", found)] if node is not None)
    except OSError as exc:
        raise InjectionRefused(
            f"device {host_path} of the host: {exc.strerror}; is it plugged in, and is the host's /dev the agent's too?"
        ) from exc
    if not nodes:
        raise InjectionRefused(f"{host_path} of the host is no device file, and no directory with device files")
    return nodes


def _below(top: Path, host_path: str) -> Iterator[HostNode]:
    count = 0
    for directory, subdirectories, files in os.walk(top):
        subdirectories[:] = sorted(set(subdirectories) - _PASSED_OVER)
        for name in sorted(set(files) - {"console"}):
            path = Path(directory, name)
            node = _node(str(path.relative_to(top)), path.lstat())
            if node is None:
                continue
            count += 1
            if count > MAX_NODES:
                raise InjectionRefused(f"directory {host_path} of the host has more than {MAX_NODES} device files")
            yield node


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
