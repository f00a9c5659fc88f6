"""Unix sockets as files: path length, gRPC target, identity, whether a process listens.

Directories, links, and whether they could be read. Locks, durable replacement, boot ID.
"""

import errno
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from msgspec import Struct
from nodedevice_common.text import clean

from nodedevice_agent.lib.patient_reads import ask

log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# sun_path, less its closing zero byte
MAX_PATH_BYTES = 107

# Errors for a missing or dangling path, or a loop; EINVAL is readlink's for a file that is not a link. Any other error proves
# nothing.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENODEV, errno.ENXIO, errno.EINVAL})
_MAX_UNANSWERED: Final = 64
# as many as the kernel follows
_MAX_LINKS: Final = 40
_unanswered: ContextVar[dict[str, str] | None] = ContextVar("unanswered", default=None)


def is_too_long(path: Path) -> bool:
    """Whether no socket can be bound or dialled at this path."""
    return len(os.fsencode(path)) > MAX_PATH_BYTES


def grpc_target(path: Path) -> str:
    """The target for gRPC to dial or bind. gRPC parses a URI, so `%`, `?` and `#` in a file name have to be quoted."""
    return f"unix:{quote(os.fsencode(path))}"


def is_served(path: Path) -> bool:
    """Whether a process listens on this socket; the file alone outlives a killed process. Does not block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            # EAGAIN: a process listens, its backlog is full
            return probe.connect_ex(os.fsencode(path)) in (0, errno.EAGAIN, errno.EINPROGRESS)
        except OSError:
            # the path is too long
            return False


def is_socket(path: Path | str, *, follow_symlinks: bool = True) -> bool:
    """Whether the path is a socket; False if unknown: the name is too long, the directory is closed to us, the disk hangs.

    os.path.exists and its siblings behave alike; pathlib's methods raise for most of these cases, so use os.path's.
    """
    status = ask_or(partial(os.stat, follow_symlinks=follow_symlinks), str(path), None)
    return status is not None and stat.S_ISSOCK(status.st_mode)


def is_directory(path: Path | str) -> bool:
    """Whether the path is a directory; False if unknown, see is_socket; or `unanswered`."""
    status = ask_or(os.stat, str(path), None)
    return status is not None and stat.S_ISDIR(status.st_mode)


def names_in(directory: str) -> list[str]:
    """Sorted names; empty if the directory is missing, is another kind of file, or was removed meanwhile; or `unanswered`.

    Drops names that are not UTF-8: neither the API nor a container runtime accepts one.
    """
    names: list[str] = ask_or(os.listdir, directory, [])
    return sorted(name for name in names if clean(name) == name)


def link_target(path: str) -> str:
    """The link's target; "" for other files; or `unanswered`."""
    target: str = ask_or(os.readlink, path, "")
    return target


def is_there(path: str) -> bool:
    """Whether anything has that name, be it a link to nothing; or `unanswered`."""
    return ask_or(os.lstat, path, None) is not None


def ask_or(call: Callable[[str], T], path: str, otherwise: D) -> T | D:
    """The result of a system call about a path; `otherwise` if it fails or no file can have this name; or `unanswered`."""
    try:
        return ask(call, path)
    except OSError as exc:
        note_unanswered(path, exc)
    except ValueError:
        pass
    return otherwise


def followed(root: str, path: str, ends: Callable[[str, str, bool], bool] = lambda *link: False) -> str:
    """A path of the host's file tree, with links followed inside the root as the host follows them.

    ends: whether a link is not followed: its target, the directory in which that is, and whether nothing comes behind the link.
    Raises OSError for links that lead in circles.
    """
    done, rest, links = "", path.split("/"), 0
    while rest:
        name = rest.pop(0)
        if name in ("", ".", ".."):
            done = done.rpartition("/")[0] if name == ".." else done
            continue
        target = link_target(f"{root}{done}/{name}")
        links += bool(target)
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        base = "" if target.startswith("/") else done
        if target and not ends(target, base, not rest):
            done, rest = base, [*target.split("/"), *rest]
        else:
            done = f"{done}/{name}"
    return done


@contextmanager
def unanswered() -> Iterator[dict[str, str]]:
    """Collects paths whose calls failed without a result while the block ran, and why: a defect, no right, no free descriptor.

    Before a caller concludes from an empty result that a device is gone, it checks here that the read succeeded. Per thread.
    """
    found: dict[str, str] = {}
    token = _unanswered.set(found)
    try:
        yield found
    finally:
        _unanswered.reset(token)


def note_unanswered(path: str, error: OSError) -> None:
    """Record that a call about a path failed; ENOENT and its like are results, and are not recorded."""
    found = _unanswered.get()
    if found is not None and not is_absent(error) and len(found) < _MAX_UNANSWERED:
        found[path] = error.strerror or str(error)


def note_again(errors: Mapping[str, str]) -> None:
    """Pass on what a block of `unanswered` has found to the block around it."""
    found = _unanswered.get()
    if found is not None:
        found.update(list(errors.items())[: max(0, _MAX_UNANSWERED - len(found))])


def is_absent(error: OSError) -> bool:
    """Whether the error proves that the file is absent; any other error leaves that unknown."""
    return error.errno in _ABSENT


class FileIdentity(Struct, frozen=True):
    """Distinguishes a file, such as a socket, from a later one at the same path.

    The inode alone is not enough: file systems reuse numbers at once. The modification time is the time of the bind; connecting,
    chmod and rename do not change it.
    """

    device: int
    inode: int
    made_ns: int


def file_identity(path: Path) -> FileIdentity | None:
    """Identity of the file at this path now; None if it is missing; or `unanswered`."""
    status = ask_or(os.lstat, str(path), None)
    return None if status is None else FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)


def lock(path: Path) -> int:
    """Lock a file for this process until the descriptor is closed; creates the file if it is missing.

    Never remove the file: that would race with the next process that locks it.
    Raises BlockingIOError while another process has the lock, OSError if the file cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove(path: Path) -> None:
    """Remove a file that is of no use any more, if it is there. One that cannot be removed is logged, and ends nothing."""
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        log.warning("cannot remove a file that is of no use any more", extra={"path": str(path), "error": exc.strerror})


class NotReplaced(OSError):
    """The new text could not be written; the file is unchanged, also after a power cut."""


def check_size(path: Path, text: str, most: int) -> None:
    """Raises NotReplaced if the text has more octets than a reader accepts."""
    if len(text) > most or (not text.isascii() and len(text.encode()) > most):
        raise NotReplaced(
            errno.EFBIG, f"it would be bigger than {most} bytes: delete pods that hold many devices", str(path)
        )


def replace_durably(path: Path, text: str) -> None:
    """Replace the file durably: a reader finds the old text or the new one.

    Raises NotReplaced, or another OSError after which it is unknown which of the two a power cut would leave.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        try:
            _write_durably(temporary, text)
        except OSError as exc:
            raise NotReplaced(*exc.args) from exc
        os.replace(temporary, path)
    except OSError:
        # half a text would use up the rest of a full disk
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _write_durably(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # no file object: it would take a fifth of the time that the disk takes
        unwritten = memoryview(text.encode())
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make renamed and created files in it survive a power cut. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """The ID of this start of the kernel; "" if the kernel shows none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
