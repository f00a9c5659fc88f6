"""The folder of built and downloaded programs, and its lock. Needs only the standard library."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.errors import BinaryError


def cache_folder() -> Path:
    """`nodedevice` in the user's cache folder (XDG_CACHE_HOME, default ~/.cache). Raises BinaryError without such a
    folder.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is invalid and to be ignored
    if configured.startswith("/"):
        return Path(configured) / "nodedevice"
    try:
        return Path.home() / ".cache" / "nodedevice"
    except RuntimeError as exc:
        raise BinaryError(
            "cache folder", "this user has no home", "set XDG_CACHE_HOME to a folder that you can write to"
        ) from exc


@contextlib.contextmanager
def lock(cache: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """One builder at a time on this machine; the kernel frees the lock however its holder ends."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(cache / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise BinaryError("cache folder", str(exc), "set XDG_CACHE_HOME to a folder that you can write to") from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another build into {cache} is under way: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
