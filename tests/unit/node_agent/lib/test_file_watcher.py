import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inotify_simple import Event, INotify
from nodedevice_agent.lib import file_watcher
from nodedevice_agent.lib.file_watcher import FileWatcher

LONG_SECONDS = 60


@pytest.fixture
async def watcher() -> AsyncIterator[FileWatcher]:
    with FileWatcher() as watcher:
        yield watcher


async def test_created_and_removed_names(watcher: FileWatcher, tmp_path: Path) -> None:
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    waiting = asyncio.ensure_future(subscription.wait(LONG_SECONDS))
    await asyncio.sleep(0)
    (tmp_path / "a").touch()
    assert await waiting == {tmp_path / "a"}
    (tmp_path / "a").unlink()
    assert await subscription.wait(LONG_SECONDS) == {tmp_path / "a"}


async def test_writes_are_reported_only_with_contents(watcher: FileWatcher, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    names, contents = watcher.subscribe(), watcher.subscribe()
    names.follow([tmp_path])
    (tmp_path / "a").write_text("x")
    assert names.drain() == frozenset()
    contents.follow([tmp_path], contents=True)
    (tmp_path / "a").write_text("y")
    assert await contents.wait(LONG_SECONDS) == {tmp_path / "a"}
    # a read changes nothing
    assert (tmp_path / "a").read_text() == "y"
    assert contents.drain() == frozenset()


async def test_a_directory_that_does_not_exist_yet(watcher: FileWatcher, tmp_path: Path) -> None:
    wanted = tmp_path / "a" / "b"
    subscription = watcher.subscribe()
    subscription.follow([wanted])
    assert subscription.followed == {tmp_path}
    wanted.mkdir(parents=True)
    assert await subscription.wait(LONG_SECONDS) == {tmp_path / "a"}
    subscription.follow([wanted])
    assert subscription.followed == {wanted}
    (wanted / "c").touch()
    assert await subscription.wait(LONG_SECONDS) == {wanted / "c"}


async def test_a_directory_that_is_removed_and_created_again(watcher: FileWatcher, tmp_path: Path) -> None:
    wanted = tmp_path / "a"
    subscription = watcher.subscribe()
    for _ in range(3):
        wanted.mkdir()
        subscription.follow([wanted])
        subscription.drain()
        wanted.rmdir()
        assert await subscription.wait(LONG_SECONDS) == {wanted}


async def test_closing_one_subscription_keeps_the_others(watcher: FileWatcher, tmp_path: Path) -> None:
    first, second = watcher.subscribe(), watcher.subscribe()
    first.follow([tmp_path])
    second.follow([tmp_path])
    first.close()
    (tmp_path / "a").touch()
    assert await second.wait(LONG_SECONDS) == {tmp_path / "a"}


async def test_lost_events_are_reported_as_an_event_of_the_directory(watcher: FileWatcher, tmp_path: Path) -> None:
    """The kernel's queue overflows."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("the kernel's queue is too long to fill: lower fs.inotify.max_queued_events")
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    for _ in range(most // 2 + 1):
        os.mknod(tmp_path / "a")
        os.unlink(tmp_path / "a")
    assert await subscription.wait(LONG_SECONDS) == {tmp_path, tmp_path / "a"}


async def test_without_inotify_polling_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(file_watcher, "INotify", refuse)
    with FileWatcher() as watcher:
        subscription = watcher.subscribe()
        subscription.follow([tmp_path / "not yet"])
        assert subscription.followed == {tmp_path}
        (tmp_path / "a").touch()
        assert await subscription.wait(0) == frozenset()
        subscription.close()
    assert "max_user_instances" in caplog.text


async def test_events_that_cannot_be_read_come_later_and_it_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A subscriber that asks for them meanwhile is not the one to fail."""
    failures = [OSError(errno.EIO, "Input/output error") for _ in range(3)]

    class Unreadable(INotify):  # type: ignore[misc]
        def read(self, timeout: int | None = None, read_delay: int | None = None) -> list[Event]:
            if failures:
                raise failures.pop()
            events: list[Event] = super().read(timeout, read_delay)
            return events

    monkeypatch.setattr(file_watcher, "INotify", Unreadable)
    with FileWatcher() as watcher:
        subscription = watcher.subscribe()
        subscription.follow([tmp_path])
        (tmp_path / "a").touch()
        assert subscription.drain() == frozenset()
        assert await subscription.wait(LONG_SECONDS) == {tmp_path / "a"}
    (failed,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(failed)["task"] == "file events"


async def test_a_directory_that_cannot_be_watched_is_logged_each_time_that_this_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(INotify):  # type: ignore[misc]
        is_full = False

        def add_watch(self, path: Path, mask: int) -> int:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(super().add_watch(path, mask))

    monkeypatch.setattr(file_watcher, "INotify", Full)
    with FileWatcher() as watcher:
        subscription = watcher.subscribe()
        for Full.is_full in (True, True, False, True, True):
            subscription.follow([tmp_path])
    assert [record.message for record in caplog.records] == ["cannot watch directory"] * 2
