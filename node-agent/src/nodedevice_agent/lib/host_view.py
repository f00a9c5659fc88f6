"""Decides which paths of this process are the host's.

An agent on the host, or with the host's whole tree at a root of its own, sees all paths. An agent in a pod sees the mounts of its
container, and elsewhere the files of its image.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_MAX_BYTES: Final = 1024 * 1024
_MOUNT_POINT: Final = 4
# the kubelet sets it in each container
_IN_POD: Final = "KUBERNETES_SERVICE_HOST"


def sees_all(root: str) -> bool:
    """root: where the host's file tree is seen; "" for the process's own root."""
    return bool(root.strip("/")) or _IN_POD not in os.environ


def seen(root: str) -> Callable[[str], bool]:
    """Whether a path of the host, from / on, is what this process sees at the same place below the root."""
    if sees_all(root):
        return lambda path: True
    points = [f"{point}/" for point in _mount_points() if point != "/"]
    return lambda path: f"{path}/".startswith(tuple(points))


def _mount_points() -> list[str]:
    try:
        with open(_MOUNTS, "rb") as file:
            lines = os.fsdecode(file.read(_MAX_BYTES)).splitlines()
    except OSError:
        return []
    fields = (line.split(" ") for line in lines)
    return [each[_MOUNT_POINT] for each in fields if len(each) > _MOUNT_POINT]
