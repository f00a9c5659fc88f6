"""The state directory, locked for one agent: of two that wrote the same checkpoint each would lose what the other wrote.

Readers, such as `nodedevice-agent checkpoint`, need no lock.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodedevice_agent.errors import SettingsError, StateDirectoryUsed

# another name than the plugin directory's lock has: both may be the same directory
_LOCK = ".nodedevice-agent.state.lock"


def make(state_dir: Path) -> None:
    """Create it with mode 0750 if it is missing. Raises SettingsError."""
    try:
        state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as exc:
        raise _unusable(state_dir, exc) from exc


@contextmanager
def held(state_dir: Path) -> Iterator[None]:
    """Lock it for this process. Raises StateDirectoryUsed, and SettingsError where no file can be created in it."""
    try:
        # never removed: that would race with the next process that locks it
        lock = os.open(state_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise _unusable(state_dir, exc) from exc
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise StateDirectoryUsed(str(state_dir)) from exc
        yield
    finally:
        os.close(lock)


def _unusable(state_dir: Path, error: OSError) -> SettingsError:
    return SettingsError(f"--state-dir {state_dir} cannot be used: {error.strerror}; make it writable or give another")
