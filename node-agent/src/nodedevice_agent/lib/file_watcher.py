"""Reports file events in directories to their subscribers, through one inotify instance for the whole process.

Instances are scarce (128 per user by default). A directory that does not exist yet is watched through its nearest existing
parent. Events can be lost (queue overflow, remounts), so subscribers rescan periodically, and no failure here is fatal.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from inotify_simple import Event, INotify, flags
from nodedevice_common.tasks import apart

log = logging.getLogger(__name__)

# Names only: every shell command writes to /dev/null, and such writes must not wake a subscriber.
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
        self._reported: set[Path] = set()

    def __enter__(self) -> Self:
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            log.error(
                "cannot watch files; polling them every 30 s instead; raise fs.inotify.max_user_instances",
                extra={"error": str(error)},
            )
        else:
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self.dispatch)
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def subscribe(self) -> "Subscription":
        """A new subscriber that follows no directory yet. Close it when done."""
        subscription = Subscription(self)
        self._subscriptions.append(subscription)
        return subscription

    def dispatch(self) -> None:
        """Pass the events that the kernel has reported so far to the subscribers."""
        events: list[Event] = []
        if self._inotify is not None:
            # after a failure they stay queued for the next call, which the reader makes at once
            with apart("file events"):
                events = self._inotify.read(timeout=0)
        for event in events:
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
        """Watch this directory or its nearest existing parent. Returns which."""
        while True:
            # the root exists always
            paths = (path for path in (directory, *directory.parents) if self._add(path, contents))
            watched = next(paths, Path(directory.anchor))
            # created between the two checks, without an event
            if watched == directory or not os.path.isdir(watched / directory.relative_to(watched).parts[0]):
                return watched

    def forget(self, subscription: "Subscription") -> None:
        """Remove a subscriber, and the watches that no other one needs."""
        self._subscriptions.remove(subscription)
        self.prune()

    def prune(self) -> None:
        """Remove the watches that no subscriber needs any more."""
        followed = {directory for subscription in self._subscriptions for directory in subscription.followed}
        for wd, directory in list(self._watches.items()):
            if directory not in followed and self._inotify is not None:
                del self._watches[wd]
                try:
                    self._inotify.rm_watch(wd)
                except OSError:
                    log.debug("watch was already removed", extra={"path": str(directory)})

    def _add(self, directory: Path, contents: bool) -> bool:
        """Whether the directory exists. A failure to watch an existing one is logged, not raised."""
        if self._inotify is None:
            return os.path.isdir(directory)
        try:
            # MASK_ADD keeps what another subscriber wants of the same directory
            wd = self._inotify.add_watch(directory, _NAMES | flags.MASK_ADD | (_CONTENTS if contents else 0))
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            # once, until it can be watched again: that is tried at every rescan
            if directory not in self._reported:
                log.warning("cannot watch directory", extra={"path": str(directory), "error": str(error)})
            self._reported.add(directory)
            return True
        self._watches[wd] = directory
        self._reported.discard(directory)
        return True

    def _note_all(self) -> None:
        log.warning("file events were lost; rescanning all directories")
        for subscription in self._subscriptions:
            for directory in subscription.followed:
                subscription.note(directory, "")


class Subscription:
    """One subscriber: the directories it follows, and the paths with events since it last asked."""

    def __init__(self, watcher: FileWatcher) -> None:
        self._watcher = watcher
        self._events: set[Path] = set()
        self._wake = asyncio.Event()
        self.followed: frozenset[Path] = frozenset()

    def follow(self, directories: Iterable[Path], *, contents: bool = False) -> None:
        """Follow exactly these directories; with contents, writes to files in them are events too.

        Call it again after each event: a directory that was created meanwhile is then watched itself.
        """
        self.followed = frozenset(self._watcher.watch(directory, contents) for directory in directories)
        self._watcher.prune()

    def note(self, directory: Path, name: str) -> None:
        """Record an event of this name in the directory; an empty name means the directory itself."""
        if directory in self.followed:
            self._events.add(directory / name)
            self._wake.set()

    def wake(self) -> None:
        """End a wait, for a reason of the subscriber's own."""
        self._wake.set()

    def drain(self) -> frozenset[Path]:
        """Paths with events so far, without waiting."""
        self._watcher.dispatch()
        events = frozenset(self._events)
        self._events.clear()
        self._wake.clear()
        return events

    async def wait(self, timeout_seconds: float) -> frozenset[Path]:
        """Paths with events; empty after a timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._wake.wait()
        except TimeoutError:
            return frozenset()
        return self.drain()

    def close(self) -> None:
        self._watcher.forget(self)
