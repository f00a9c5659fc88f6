"""A directory on the host for each container, `<directory>/<pod UID>_<container>`, from before its start until after its end.

A record of each in the agent's state directory shows that the agent created it: other directories are never removed. The record
is a symbolic link to the host's path, as a link is created atomically; nothing follows it. When a container ends, its directory
is renamed to `<name>.ended` at once, and removed in a thread, as it may be large.
"""

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count, islice
from pathlib import Path, PurePosixPath

from nodedevice_common.threads import in_thread

from nodedevice_agent.lib.filesystem import link_target, names_in
from nodedevice_agent.lib.patient_reads import ask, with_deadlines

log = logging.getLogger(__name__)

# A pod's UID, or the hash of a static pod's configuration; and a DNS label.
_NAME = re.compile(
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32})_[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)
_ENDED = ".ended"
# a container's processes may have any user
_FOR_EVERYBODY = 0o777
# no symbolic link: what a container left may lead anywhere
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# of a directory, read at once
_ENTRIES = 1024


class ContainerDirectories:
    """Directories of one resource. records: a folder of the agent's alone. host_root: where the agent sees the host's file tree."""

    def __init__(self, records: Path, host_root: str) -> None:
        self._records = records
        self._host_root = host_root.rstrip("/")

    def make(self, directory: str, pod_uid: str, container: str) -> str:
        """The path of the container's directory on the host. Raises OSError, or ValueError for a name of another form."""
        name = f"{pod_uid}_{container}"
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:160]!r} is not a pod's UID and a container's name")
        path = f"{directory.rstrip('/')}/{name}"
        ask(_record, str(self._records / name), path)
        self.make_shared(path)
        return path

    def make_shared(self, path: str) -> None:
        """A directory of the host, which every user may use; a file that is there already stays. Raises OSError."""
        ask(_make_shared, self._host_root + path)

    async def keep(self, names: Collection[str]) -> None:
        """Remove all directories but these, each <pod UID>_<container>. Raises OSError if one could not be removed."""
        ended = with_deadlines(lambda: {n: path for n, path in self._recorded().items() if n not in names})
        asides = [_aside(path) for path in ended.values()]
        problems = with_deadlines(lambda: _problems("rename", _set_aside, ended.values()))
        problems += await in_thread(lambda: _problems("remove", _remove_tree, asides))
        problems += with_deadlines(lambda: self._forget(ended))
        if problems:
            raise OSError("; ".join(problems[:3]))

    def _forget(self, ended: Mapping[str, Path]) -> list[str]:
        """Drop the records of removed directories. Returns the names of the remaining ones."""
        left = []
        for name, path in ended.items():
            if ask(os.path.lexists, str(path)) or ask(os.path.lexists, str(_aside(path))):
                # made again meanwhile, or an earlier one had to go first
                left.append(f"{path} is not removed yet")
            else:
                (self._records / name).unlink(missing_ok=True)
                log.info("directory of a container removed", extra={"path": str(path)})
        return left

    def _recorded(self) -> dict[str, Path]:
        """Recorded directories by name, with the agent's paths. Foreign records are ignored."""
        found = {}
        for name in names_in(str(self._records)):
            path = link_target(str(self._records / name)) if _NAME.fullmatch(name) else ""
            if PurePosixPath(path).name == name and ".." not in path:
                found[name] = Path(self._host_root + path)
        return found


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _ENDED)


def _problems(verb: str, act: Callable[[Path], None], paths: Iterable[Path]) -> list[str]:
    """Why some of these were not renamed or removed, such as a mount."""
    problems = []
    for path in paths:
        try:
            act(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"cannot {verb} {path}: {error.strerror or error}")
    return problems


def _set_aside(path: Path) -> None:
    """Rename: a directory that is made meanwhile is another one. An earlier one that is not removed yet goes first."""
    ask(_rename, str(path), str(_aside(path)))


def _rename(path: str, aside: str) -> None:
    if not os.path.lexists(aside):
        os.rename(path, aside)


def _record(record: str, path: str) -> None:
    os.makedirs(os.path.dirname(record), exist_ok=True)
    with suppress(FileExistsError):
        os.symlink(path, record)


def _make_shared(path: str) -> None:
    if os.path.isfile(path):
        return
    os.makedirs(path, exist_ok=True)
    # no symbolic link: in a directory such as /tmp anybody may have put one
    opened = os.open(path, _DIRECTORY)
    try:
        if stat.S_IMODE(os.fstat(opened).st_mode) & _FOR_EVERYBODY != _FOR_EVERYBODY:
            os.fchmod(opened, _FOR_EVERYBODY)
    finally:
        os.close(opened)


def _remove_tree(path: Path) -> None:
    """However deep and full: each directory is emptied by moving its own to the top. Follows no symbolic links. Raises OSError."""
    numbers = count()
    top = os.open(path, _DIRECTORY)
    try:
        _empty(top, lambda name: _remove_directory(name, top, numbers))
    finally:
        os.close(top)
    os.rmdir(path)


def _remove_directory(name: str, top: int, numbers: Iterator[int]) -> None:
    directory = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        _empty(directory, lambda below: _move_up(below, directory, top, numbers))
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _empty(directory: int, take: Callable[[str], None]) -> None:
    """take: called for each directory in it."""
    while True:
        with os.scandir(directory) as scan:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(scan, _ENTRIES)]
        if not entries:
            return
        for name, is_directory in entries:
            if is_directory:
                take(name)
            else:
                os.unlink(name, dir_fd=directory)


def _move_up(name: str, directory: int, top: int, numbers: Iterator[int]) -> None:
    """Under a name that nothing there has."""
    for number in numbers:
        try:
            os.rename(name, f"{number}{_ENDED}", src_dir_fd=directory, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            return
