"""Looks at files of the host: which are devices, near which NUMA node, and the links that udev makes to them."""

import contextlib
import os
import stat

from nodedevice_agent.lib.filesystem import names_in
from nodedevice_agent.plugins.generic.devices import FoundFile
from nodedevice_agent.plugins.generic.stable_names import LINK_DIRECTORIES
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.patterns import Captures


def found_file(root: str, path: str, captures: Captures = ()) -> FoundFile | None:
    """None for a missing file, a socket or a pipe. Follows links: udev names devices by them."""
    try:
        status = os.stat(root + path)
    except (OSError, ValueError):
        return None
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else ""
    if kind:
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        return FoundFile(path, captures, True, Sysfs(root).numa_nodes_of(kind, number))
    is_directory = stat.S_ISDIR(status.st_mode)
    if is_directory or stat.S_ISREG(status.st_mode):
        return FoundFile(path, captures, False, is_directory=is_directory)
    return None


def udev_links(root: str) -> dict[str, str]:
    """The links in directories such as /dev/serial/by-id, and the file that each leads to. root: as above."""
    links: dict[str, str] = {}
    for group in _directories(f"{root}/dev"):
        for kind in LINK_DIRECTORIES:
            directory = f"/dev/{group}/{kind}"
            for name in names_in(root + directory):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"{root}{directory}/{name}")
                    links[f"{directory}/{name}"] = os.path.normpath(f"{directory}/{target}")
    return links


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
