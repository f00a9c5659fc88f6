"""Tells plugins that something happened in directories they care about; one inotify instance for all of them.

Instances are scarce (128 a user by default), so every plugin subscribes to this one. A directory that does not exist yet
is watched through its nearest existing parent. Events can be lost (queue overflow, remounts): who subscribes looks again
by itself from time to time, so nothing here is fatal.
"""

import asyncio
import errno
import logging
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from inotify_simple import INotify, flags

log = logging.getLogger(__name__)

# Names only: /dev/null is written by every shell command, and such writes must not wake anybody.
_NAMES = (
    flags.CREATE
    | flags.DELETE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.DELETE_SELF
    | flags.MOVE_SELF
    | flags.ONLYDIR
)
_CONTENTS = flags.CLOSE_WRITE
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class FileWatcher:
    """The process's one inotify instance. Use as a context manager inside a running event loop."""

    def __init__(self) -> None:
        self._inotify: INotify | None = None
        self._watches: dict[int, Path] = {}
        self._subscriptions: list[Subscription] = []
        self._complained: set[Path] = set()

    def __enter__(self) -> Self:
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            log.error(
                "cannot watch files; changes are found by looking every half minute; raise fs.inotify.max_user_instances",
                extra={"error": str(error)},
            )
        else:
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self.dispatch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def subscribe(self) -> "Subscription":
        """A new subscriber, following nothing yet; close it when done."""
        subscription = Subscription(self)
        self._subscriptions.append(subscription)
        return subscription

    def dispatch(self) -> None:
        """Hand on what the kernel has reported so far."""
        if self._inotify is None:
            return
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                self._note_all()
                continue
            directory = self._watches.get(event.wd)
            if directory is None:
                continue
            if event.mask & flags.IGNORED:
                del self._watches[event.wd]
            for subscription in self._subscriptions:
                subscription.note(directory, event.name)

    def watch(self, directory: Path, contents: bool) -> Path:
        """Watch this directory or its nearest existing parent; answers which."""
        while True:
            watched = self._nearest(directory, contents)
            # made between the two looks: its creation was not seen, so look again
            if watched == directory or not _next_on_the_way(watched, directory).is_dir():
                return watched

    def forget(self, subscription: "Subscription") -> None:
        """Drop a subscriber, and the watches nobody else follows."""
        self._subscriptions.remove(subscription)
        self.prune()

    def prune(self) -> None:
        """Stop watching what nobody follows any more."""
        followed = {directory for subscription in self._subscriptions for directory in subscription.followed}
        for wd, directory in list(self._watches.items()):
            if directory not in followed and self._inotify is not None:
                del self._watches[wd]
                try:
                    self._inotify.rm_watch(wd)
                except OSError:
                    log.debug("watch had ended by itself", extra={"path": str(directory)})

    def _nearest(self, directory: Path, contents: bool) -> Path:
        for candidate in (directory, *directory.parents):
            if self._add(candidate, contents):
                return candidate
        return Path(directory.anchor)

    def _add(self, directory: Path, contents: bool) -> bool:
        """Whether there is such a directory to watch; trouble with one that exists is told, not raised."""
        if self._inotify is None:
            return directory.is_dir()
        try:
            # MASK_ADD: another subscriber's wish for the same directory stays
            wd = self._inotify.add_watch(directory, _NAMES | flags.MASK_ADD | (_CONTENTS if contents else 0))
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            self._complain(directory, error)
            return True
        self._watches[wd] = directory
        return True

    def _complain(self, directory: Path, error: OSError) -> None:
        """Once a directory: it is tried again at every look."""
        if directory not in self._complained:
            log.warning("cannot watch directory", extra={"path": str(directory), "error": str(error)})
        self._complained.add(directory)

    def _note_all(self) -> None:
        log.warning("file events were lost; looking again everywhere")
        for subscription in self._subscriptions:
            for directory in subscription.followed:
                subscription.note(directory, "")


class Subscription:
    """One subscriber: the directories it follows, and the paths where something happened since it last asked."""

    def __init__(self, watcher: FileWatcher) -> None:
        self._watcher = watcher
        self._happened: set[Path] = set()
        self._wake = asyncio.Event()
        self.followed: frozenset[Path] = frozenset()

    def follow(self, directories: Iterable[Path], *, contents: bool = False) -> None:
        """Follow exactly these from now on; with contents, files written in them count too.

        Call it again after each change: a directory that has come into being is then watched itself.
        """
        self.followed = frozenset(self._watcher.watch(directory, contents) for directory in directories)
        self._watcher.prune()

    def note(self, directory: Path, name: str) -> None:
        """Something happened to this name in this directory, or to the directory itself when the name is empty."""
        if directory in self.followed:
            self._happened.add(directory / name)
            self._wake.set()

    def drain(self) -> frozenset[Path]:
        """Where something happened so far, without waiting."""
        self._watcher.dispatch()
        happened = frozenset(self._happened)
        self._happened.clear()
        self._wake.clear()
        return happened

    async def wait(self, timeout_seconds: float) -> frozenset[Path]:
        """Where something happened; empty when nothing did in this time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._wake.wait()
        except TimeoutError:
            return frozenset()
        return self.drain()

    def close(self) -> None:
        """Follow nothing any more."""
        self._watcher.forget(self)


def _next_on_the_way(parent: Path, directory: Path) -> Path:
    return parent / directory.relative_to(parent).parts[0]
