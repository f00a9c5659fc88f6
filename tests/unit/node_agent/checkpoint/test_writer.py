"""Writing in the background: many changes become one write, one write at a time, and none is reported before it is on disk."""

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs
from nodedevice_agent.checkpoint import writer as checkpoint_writer
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.writer import CheckpointStore, CheckpointWriter, Journal
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.lib import filesystem

from tests.fakes.polling import PATIENCE_SECONDS, until
from tests.unit.node_agent.checkpoint.samples import GPU, held_by, read

# of devices
HEALTHY = structs.replace(held_by("uid-a"), registered={GPU: ("d0", "d1")})
UNHEALTHY = structs.replace(HEALTHY, registered={GPU: ("d0",)})


class Saving:
    """A writer, the state that it writes, and what is in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = Checkpoint()
        # each problem of the writer, and "" once there is none
        self.problems: list[str] = []
        self.writer = CheckpointWriter(folder, lambda: self.state, lambda: self.problems.append(self.writer.problem))

    def request(self, state: Checkpoint) -> int:
        self.state = state
        return self.writer.request()

    async def save(self, state: Checkpoint) -> None:
        await self.writer.flushed(self.request(state))

    async def close(self) -> None:
        await self.writer.close(PATIENCE_SECONDS)

    def read(self) -> Checkpoint:
        return read(self.folder)

    def holder(self) -> str:
        return self.read().allocations[0].pod_uid

    def alone(self) -> Checkpoint:
        return decode((self.folder / FILE_NAME).read_text())

    def holder_alone(self) -> str:
        return self.alone().allocations[0].pod_uid

    def names(self) -> list[str]:
        return [entry.name for entry in self.folder.iterdir()]


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "_RETRY_SECONDS", 0.0)


@pytest.fixture
async def saving(tmp_path: Path) -> AsyncIterator[Saving]:
    saving = Saving(tmp_path)
    yield saving
    # not for long: one that the test has closed has no thread that could answer
    await saving.writer.close(0.1)


class TestWriting:
    async def test_is_on_disk_when_flushed(self, saving: Saving) -> None:
        await saving.save(held_by("uid-a"))
        assert saving.holder() == "uid-a"
        assert (saving.folder / FILE_NAME).stat().st_mode & 0o777 == 0o600
        await saving.close()
        assert saving.names() == [FILE_NAME]

    async def test_writes_the_boot_id(self, saving: Saving) -> None:
        await saving.save(saving.state)
        assert saving.read().boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    async def test_close_writes_nothing_without_a_request(self, saving: Saving) -> None:
        await saving.close()
        assert saving.names() == []

    async def test_close_waits_for_the_write_under_way_and_saves_later_changes(
        self, saving: Saving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two writers of one temporary file would make a mixture of both."""
        began, may_go_on = threading.Event(), threading.Event()
        write, at_once = filesystem.replace_durably, []

        def slow(path: Path, text: str) -> None:
            at_once.append(1)
            assert len(at_once) == 1, "two writes at once"
            began.set()
            assert may_go_on.wait(PATIENCE_SECONDS)
            write(path, text)
            at_once.clear()

        monkeypatch.setattr(filesystem, "replace_durably", slow)
        saving.request(held_by("uid-a"))
        assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        saving.request(held_by("uid-b"))
        asyncio.get_running_loop().call_soon(may_go_on.set)
        await saving.close()
        assert saving.holder_alone() == "uid-b"
        assert saving.names() == [FILE_NAME]

    async def test_a_disk_that_takes_nothing_is_not_waited_for(
        self, saving: Saving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def full(path: Path, text: str) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(filesystem, "replace_durably", full)
        saving.request(held_by("uid-a"))
        await saving.writer.close(0.05)
        assert "the last checkpoint was not written" in [record.getMessage() for record in caplog.records]


class TestLines:
    """Writes after the first one, which the whole file follows only where a test wants it."""

    @pytest.fixture
    async def begun(self, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> Saving:
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 3600.0)
        await saving.save(held_by("uid-a"))
        return saving

    async def test_the_whole_file_follows_by_itself(self, begun: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
        await begun.save(held_by("uid-b"))
        assert (begun.holder(), begun.holder_alone()) == ("uid-b", "uid-a")
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 0.01)
        await begun.save(held_by("uid-c"))
        assert begun.holder() == "uid-c"
        await until(lambda: begun.holder_alone() == "uid-c")

    async def test_the_health_of_devices_waits_for_the_whole_file(self, begun: Saving) -> None:
        """A restart uses only the names of the resources; a name that is new is a line."""
        await begun.save(HEALTHY)
        await begun.save(UNHEALTHY)
        assert begun.read().registered == HEALTHY.registered
        await begun.close()
        assert begun.alone().registered == begun.state.registered

    async def test_health_alone_makes_the_file_follow(self, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoint_writer, "HEALTH_AFTER_SECONDS", 0.01)
        await saving.save(HEALTHY)
        await saving.save(UNHEALTHY)
        await until(lambda: saving.alone().registered == saving.state.registered)

    async def test_a_line_makes_it_follow_sooner(self, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoint_writer, "HEALTH_AFTER_SECONDS", 3600.0)
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 0.01)
        for state in (HEALTHY, UNHEALTHY, structs.replace(UNHEALTHY, allocations=held_by("uid-b").allocations)):
            await saving.save(state)
        await until(lambda: saving.alone().registered == saving.state.registered)

    async def test_changes_during_a_write_share_one_line(self, begun: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
        lines: list[bytes] = []
        began, may_go_on = threading.Event(), threading.Event()
        append = Journal.append

        def slow(self: Journal, line: bytes) -> None:
            lines.append(line)
            began.set()
            assert may_go_on.wait(PATIENCE_SECONDS)
            append(self, line)

        monkeypatch.setattr(Journal, "append", slow)
        for index in range(50):
            number = begun.request(held_by(f"uid-{index}"))
            assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        last = asyncio.create_task(begun.writer.flushed(number))
        await asyncio.sleep(0)
        assert not last.done()
        may_go_on.set()
        await last
        assert begun.holder() == "uid-49"
        assert len(lines) == 2


def test_a_new_journal_is_in_its_directory_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation whose line is on disk in a file without a name would be lost."""
    synced = []

    def sync_directory(directory: Path) -> None:
        synced.append((directory, (tmp_path / "j").stat().st_size))

    monkeypatch.setattr(filesystem, "sync_directory", sync_directory)
    Journal(tmp_path / "j").close()
    assert synced == [(tmp_path, checkpoint_writer.JOURNAL_BYTES)]


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (ValueError("odd"), "ValueError('odd')"),
    ],
)
async def test_a_failed_write_is_logged_with_its_path_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, logged: str
) -> None:
    failures, save = [error, error], CheckpointStore.save

    def failing(store: CheckpointStore, checkpoint: Checkpoint, *, whole: bool = False) -> None:
        if failures:
            raise failures.pop()
        save(store, checkpoint, whole=whole)

    monkeypatch.setattr(CheckpointStore, "save", failing)
    saving = Saving(tmp_path)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await saving.save(held_by("p"))
        await saving.close()
    assert saving.holder() == "p"
    # once, however often it fails
    [record] = [record.__dict__ for record in caplog.records if record.levelno == logging.ERROR]
    assert (record["path"], record["error"]) == (str(tmp_path), logged)
    [problem, none] = saving.problems
    assert problem.startswith(f"cannot write {tmp_path}: ")
    assert none == ""


def test_while_the_file_cannot_be_written_the_journal_has_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, text: str) -> None:
        raise filesystem.NotReplaced(errno.ENOSPC, "No space left on device")

    store = CheckpointStore(tmp_path)
    store.save(held_by("p"))
    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "replace_durably", full)
        for uid in ("q", "r"):
            store.save(held_by(uid), whole=True)
            assert (read(tmp_path).allocations[0].pod_uid, store.is_whole) == (uid, False)
    [record] = [record.__dict__ for record in caplog.records]
    assert (record["path"], record["error"]) == (str(tmp_path / FILE_NAME), "No space left on device")
    store.save(held_by("s"), whole=True)
    assert decode((tmp_path / FILE_NAME).read_text()).allocations[0].pod_uid == "s"
    store.close()


class TestFailuresBeforeAWrite:
    """Process IDs that are used up, and whatever else comes before the disk."""

    @pytest.mark.parametrize("times", [1, 3])
    async def test_a_thread_that_cannot_be_started_is_tried_again(
        self, saving: Saving, monkeypatch: pytest.MonkeyPatch, times: int
    ) -> None:
        left, start = list(range(times)), threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if left:
                left.pop()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refused)
        await saving.save(held_by("uid-a"))
        assert saving.holder() == "uid-a"
        assert len(saving.problems) == 2
        assert "no thread can be started: free process IDs" in saving.problems[0]
        assert saving.problems[1] == ""
