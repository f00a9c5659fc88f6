"""Looks at files of the host: which are devices, and near which NUMA node."""

import os
import stat

from nodedevice_agent.plugins.generic.devices import FoundFile
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.patterns import Captures


def found_file(root: str, path: str, captures: Captures = ()) -> FoundFile | None:
    """None for a missing file, or one that is neither a device nor a regular file. Follows links: udev names devices by them."""
    try:
        status = os.stat(root + path)
    except (OSError, ValueError):
        return None
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else ""
    if kind:
        number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        return FoundFile(path, captures, True, Sysfs(root).numa_nodes_of(kind, number))
    return FoundFile(path, captures, False) if stat.S_ISREG(status.st_mode) else None
