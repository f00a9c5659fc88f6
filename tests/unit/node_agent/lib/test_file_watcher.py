import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
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
