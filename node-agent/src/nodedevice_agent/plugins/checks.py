"""Checks that the settings of several built-in plugins share. An error names the key, the value and the remedy. Pure."""

from collections import Counter
from collections.abc import Iterable

from nodedevice_api.extended_resources import resource_name_problem

MAX_PATH = 4096


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


def first_repeated(names: Iterable[str]) -> str:
    """Empty if none is."""
    return next((name for name, count in Counter(names).items() if count > 1), "")
