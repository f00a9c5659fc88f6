"""Files of the host that the devices of GPUs are handed over with, as they are now; below the root where the agent sees them.

They are read in the agent's event loop: /dev and /proc have no disk or device behind them.
"""

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec.structs import replace

from nodedevice_agent.plugins.nvml.devices import CONTROL_NODES
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.identity import OnHost
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, MigInstance, capability_minors

# /dev/null and its like: a device file that is a link to one of them is no other device
_MEMORY_MAJOR = 1


def on_host(
    root: str, gpus: Iterable[Gpu], instances: Collection[tuple[Gpu, MigInstance]], *, hands_over_files: bool
) -> OnHost:
    """The device files of these GPUs, and of these instances where containers get device files."""
    found = OnHost(hands_over_files=hands_over_files)
    paths = {path for gpu in gpus for path in found.paths(gpu)}
    if hands_over_files and instances:
        found = replace(found, capabilities=capabilities(root))
        paths |= {path for gpu, instance in instances for path in found.paths(gpu, instance)}
    numbers = {path: number for path in paths if (number := number_of(root, path))}
    return replace(found, numbers=numbers)


def number_of(root: str, path: str) -> str:
    """Type, major and minor number of a device file, c195:0; its path where it is a link to /dev/null; empty where it is none."""
    try:
        status = os.stat(root + path)
    except OSError:
        return ""
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b" if stat.S_ISBLK(status.st_mode) else ""
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    if kind == "c" and major == _MEMORY_MAJOR:
        return f"path:{path}"
    return f"{kind}{major}:{minor}" if kind else ""


def control_nodes(root: str) -> list[str]:
    """Those that are there."""
    return [path for path in CONTROL_NODES if os.path.exists(root + path)]


def capabilities(root: str) -> dict[str, int]:
    """See mig.capability_minors(); empty where the driver has no such file."""
    try:
        return capability_minors(Path(root + CAPABILITY_MINORS).read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return {}
