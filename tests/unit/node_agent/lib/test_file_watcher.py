import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inotify_simple import Event, flags
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
    (tmp_path / "a").touch()
    assert await subscription.wait(LONG_SECONDS) == {tmp_path / "a"}
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


async def test_a_file_in_the_place_of_a_directory(watcher: FileWatcher, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    subscription = watcher.subscribe()
    subscription.follow([tmp_path / "a" / "b"])
    assert subscription.followed == {tmp_path}


async def test_closing_one_subscription_keeps_the_others(watcher: FileWatcher, tmp_path: Path) -> None:
    first, second = watcher.subscribe(), watcher.subscribe()
    first.follow([tmp_path])
    second.follow([tmp_path])
    first.close()
    (tmp_path / "a").touch()
    assert await second.wait(LONG_SECONDS) == {tmp_path / "a"}
    second.close()
    assert watcher._watches == {}


async def test_a_wait_without_events_times_out(watcher: FileWatcher, tmp_path: Path) -> None:
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    assert await subscription.wait(0) == frozenset()


async def test_an_overflow_is_reported_as_an_event_of_every_directory(tmp_path: Path, watcher: FileWatcher) -> None:
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    watcher._note_all()
    assert await subscription.wait(LONG_SECONDS) == {tmp_path}


async def test_events_after_an_overflow_or_of_what_nobody_watches_are_reported_all_the_same(
    tmp_path: Path, watcher: FileWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    assert watcher._inotify is not None
    (own,) = watcher._watches
    reported = [
        Event(own + 1, flags.CREATE, 0, "of another"),
        Event(own, flags.CREATE, 0, "a"),
        Event(-1, flags.Q_OVERFLOW, 0, ""),
        Event(own, flags.CREATE, 0, "b"),
    ]
    monkeypatch.setattr(watcher._inotify, "read", lambda *, timeout: reported)
    assert subscription.drain() == {tmp_path, tmp_path / "a", tmp_path / "b"}


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


async def test_an_event_ends_a_wait_at_once(watcher: FileWatcher, tmp_path: Path) -> None:
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    waiting = asyncio.ensure_future(subscription.wait(LONG_SECONDS))
    await asyncio.sleep(0)
    (tmp_path / "a").touch()
    assert await waiting == {tmp_path / "a"}


async def test_events_that_cannot_be_read_come_later_and_it_is_logged_once(
    watcher: FileWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A subscriber that asks for them meanwhile is not the one to fail."""
    subscription = watcher.subscribe()
    subscription.follow([tmp_path])
    assert watcher._inotify is not None
    failures = [OSError(errno.EIO, "Input/output error") for _ in range(3)]
    read = watcher._inotify.read

    def reading(*, timeout: int) -> list[Event]:
        assert timeout == 0
        if failures:
            raise failures.pop()
        found: list[Event] = read(timeout=timeout)
        return found

    monkeypatch.setattr(watcher._inotify, "read", reading)
    (tmp_path / "a").touch()
    assert subscription.drain() == frozenset()
    assert await subscription.wait(LONG_SECONDS) == {tmp_path / "a"}
    (failed,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(failed)["task"] == "file events"


async def test_a_directory_that_cannot_be_watched_is_logged_each_time_that_this_begins(
    watcher: FileWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subscription = watcher.subscribe()
    assert watcher._inotify is not None
    add = watcher._inotify.add_watch

    def failing(path: Path, mask: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        monkeypatch.setattr(watcher._inotify, "add_watch", failing)
        for _ in range(2):
            subscription.follow([tmp_path])
        monkeypatch.setattr(watcher._inotify, "add_watch", add)
        subscription.follow([tmp_path])
    assert [record.message for record in caplog.records] == ["cannot watch directory"] * 2
