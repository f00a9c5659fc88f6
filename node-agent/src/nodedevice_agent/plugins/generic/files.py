"""Looks at files of the host: which are devices, and near which NUMA node."""

import os
import stat
from pathlib import Path

from nodedevice_agent.plugins.generic.devices import FoundFile
from nodedevice_agent.plugins.patterns import Captures


def found_file(root: str, path: str, captures: Captures = ()) -> FoundFile | None:
    """None for a missing file, or one that is neither a device nor a regular file. Follows links: udev names devices by them."""
    try:
        status = os.stat(root + path)
    except (OSError, ValueError):
        return None
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else ""
    if kind:
        return FoundFile(path, captures, True, _numa_nodes(root, kind, status.st_rdev))
    return FoundFile(path, captures, False) if stat.S_ISREG(status.st_mode) else None


def _numa_nodes(root: str, kind: str, number: int) -> tuple[int, ...]:
    """From sysfs; empty for a device without a bus of its own, or on a machine with one node (-1)."""
    path = f"{root}/sys/dev/{kind}/{os.major(number)}:{os.minor(number)}/device/numa_node"
    try:
        node = int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return ()
    return (node,) if node >= 0 else ()
