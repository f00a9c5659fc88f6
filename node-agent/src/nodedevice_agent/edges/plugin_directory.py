"""The plugin directory: whose it is, and which sockets in it are of the past.

Sockets that an earlier manager left are removed, as the kubelet does, because many plugins register again only when their
own socket vanishes. Never so in a directory that another manager serves: a lock file tells ours, a dial tells any other.
Source: kubelet pkg/kubelet/cm/devicemanager/manager.go, removeContents.
"""

import fcntl
import os
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from nodedevice_agent.errors import DirectoryServed, SettingsError

REGISTRATION_SOCKET = "kubelet.sock"
# A dot file: a kubelet that looks for a checkpoint here must not take it for one.
_LOCK = ".nodedevice-agent.lock"
_DIAL_SECONDS = 1.0
# sun_path, less its closing zero byte
_MAX_SOCKET_PATH = 107


class PluginDirectory:
    """The directory, held for this process alone until closed."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.registration_socket = path / REGISTRATION_SOCKET
        self._lock = lock

    @classmethod
    def take(cls, path: Path) -> Self:
        """Make the directory (0750), lock it, and clear it of sockets. Raises DirectoryServed, SettingsError."""
        registration_socket = path / REGISTRATION_SOCKET
        if len(os.fsencode(registration_socket)) > _MAX_SOCKET_PATH:
            raise SettingsError(
                f"--plugin-dir {path} is too long: a socket's path has at most {_MAX_SOCKET_PATH} bytes"
            )
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise SettingsError(f"--plugin-dir {path} cannot be used: {exc.strerror}") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(lock)
            raise DirectoryServed(str(path), "it holds the directory's lock") from exc
        if _answers(registration_socket):
            os.close(lock)
            raise DirectoryServed(str(path), f"it answers on {REGISTRATION_SOCKET}")
        _remove_sockets(path)
        return cls(path, lock)

    def close(self) -> None:
        """Let another manager have it. The lock file stays: removing it would race with whoever locks it next."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_DIAL_SECONDS)
        try:
            client.connect(str(path))
        except TimeoutError:
            # somebody listens and is too busy to accept
            return True
        except OSError:
            return False
        return True


def _remove_sockets(path: Path) -> None:
    for entry in os.scandir(path):
        if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
            os.unlink(entry.path)
