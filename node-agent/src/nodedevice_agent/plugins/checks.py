"""Checks that the settings of several built-in plugins share. An error names the key, the value and the remedy. Pure."""

import re
from collections import Counter
from collections.abc import Iterable

from nodedevice_api.extended_resources import resource_name_problem

MAX_PATH = 4096
_PERMISSIONS = re.compile(r"[rwm]{1,3}")


def check_resource_name(resource_name: str) -> None:
    """Raises ValueError."""
    problem = resource_name_problem(resource_name)
    if problem:
        raise ValueError(f"resourceName: {resource_name[:400]!r}: {problem}")


def check_path(key: str, path: str) -> None:
    """key: for the message. Raises ValueError."""
    if not path.startswith("/"):
        raise ValueError(f"{key}: {path[:400]!r} must be an absolute path, such as /dev/ttyUSB0")
    if len(path) > MAX_PATH or "\0" in path:
        raise ValueError(f"{key}: {path[:400]!r} is not a path: at most {MAX_PATH} characters, none of them NUL")
    if ".." in path.split("/") or "//" in path:
        raise ValueError(f"{key}: {path[:400]!r} must be a plain path, without .. and //")


def check_permissions(permissions: str) -> None:
    """Of a container for a device file. Raises ValueError."""
    if not _PERMISSIONS.fullmatch(permissions) or len(set(permissions)) != len(permissions):
        raise ValueError(f"permissions: {permissions!r} must be some of the letters r, w and m, each once; try rw")


def first_repeated(names: Iterable[str]) -> str:
    """Empty if none is."""
    return next((name for name, count in Counter(names).items() if count > 1), "")
