"""The plugin directory: locked for one device manager, and cleared of the sockets of an earlier one.

Old sockets are removed, as the kubelet does, because many plugins register again only when their own socket vanishes. A directory
that another manager serves is never cleared: another agent is detected by the lock file, any other manager by dialling its socket.
Source: kubelet pkg/kubelet/cm/devicemanager/manager.go, removeContents.
"""

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Self

from nodedevice_agent.errors import AgentSettingsError, DirectoryServed
from nodedevice_agent.lib.filesystem import MAX_PATH_BYTES, is_absent, is_served, is_too_long, lock, remove

REGISTRATION_SOCKET = "kubelet.sock"
# Dot files: a kubelet that reads a checkpoint from here must not take them for one.
_LOCK = ".nodedevice-agent.lock"
_KEPT = ".kept-"


class PluginDirectory:
    """The directory, held for this process alone until closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registration_socket = path / REGISTRATION_SOCKET
        self._lock = -1

    @classmethod
    def take(cls, path: Path) -> Self:
        """Create and lock the directory; its files stay until clear(). Raises DirectoryServed, AgentSettingsError."""
        directory = cls(path)
        if is_too_long(directory.registration_socket):
            raise AgentSettingsError(
                f"--plugin-dir {path} is too long: a socket's path has at most {MAX_PATH_BYTES} bytes"
            )
        directory.hold()
        if is_served(directory.registration_socket):
            directory.close()
            raise DirectoryServed(str(path), f"it listens on {REGISTRATION_SOCKET}")
        return directory

    def hold(self) -> None:
        """Create and lock the directory (0750) if it was removed. Raises DirectoryServed, AgentSettingsError."""
        if self._is_held():
            return
        self.close()
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock = lock(self.path / _LOCK)
        except BlockingIOError as exc:
            raise DirectoryServed(str(self.path), "it holds the directory's lock") from exc
        except OSError as exc:
            # nothing can be created in a mount whose directory was removed on the host
            remedy = "; its directory was removed on the host: restart this pod" if exc.errno == errno.ENOENT else ""
            raise AgentSettingsError(f"--plugin-dir {self.path} cannot be used: {exc.strerror}{remedy}") from exc

    def _is_held(self) -> bool:
        """Whether the lock is on the file that exists now."""
        try:
            return self._lock >= 0 and os.path.samestat(os.fstat(self._lock), os.lstat(self.path / _LOCK))
        except OSError as exc:
            return not is_absent(exc)

    def clear(self, but: Collection[str] = ()) -> None:
        """Remove every socket except those with these file names. Raises AgentSettingsError."""
        try:
            for entry in os.scandir(self.path):
                # a plugin may remove its own socket meanwhile
                with suppress(FileNotFoundError):
                    if entry.name not in but and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                        os.unlink(entry.path)
        except OSError as exc:
            raise AgentSettingsError(
                f"--plugin-dir {self.path}: an old socket cannot be removed: {exc.strerror} ({exc.filename})"
            ) from exc

    def keep(self, socket_name: str) -> str:
        """Give a socket a second name, so that clear() can remove the first. Returns the first if that is impossible."""
        if socket_name.startswith(_KEPT):
            return socket_name
        kept = self.path / f"{_KEPT}{socket_name}"
        if is_too_long(kept):
            return socket_name
        try:
            kept.unlink(missing_ok=True)
            os.link(self.path / socket_name, kept, follow_symlinks=False)
        except OSError:
            return socket_name
        return kept.name

    def reachable(self, socket_name: str) -> str:
        """The name to dial a registered socket: the second name if clear() removed the first."""
        kept = f"{_KEPT}{socket_name}"
        is_cleared = not os.path.lexists(self.path / socket_name) and os.path.lexists(self.path / kept)
        return kept if is_cleared else socket_name

    def forget(self, socket_name: str) -> None:
        """Remove a second name that keep() gave; a plugin's own socket is the plugin's."""
        if socket_name.startswith(_KEPT):
            remove(self.path / socket_name)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def registered_name(socket_name: str) -> str:
    """The file name that a plugin registered; the argument may be a second name of its socket."""
    return socket_name.removeprefix(_KEPT)
