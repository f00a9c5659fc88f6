"""Writing in the background: many changes become one write, one write at a time, and none is reported before it is on disk."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint import writer as checkpoint_writer
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.writer import CheckpointStore, CheckpointWriter, Journal
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint
from nodedevice_agent.lib import filesystem

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 30


def held_by(uid: str) -> Checkpoint:
    return Checkpoint((Allocation(uid, "main", "example.com/gpu", {-1: ("d0",)}, b"ok"),))


class State:
    """The state that the writer writes."""

    def __init__(self) -> None:
        self.checkpoint = Checkpoint()

    def current(self) -> Checkpoint:
        return self.checkpoint


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
async def writer(tmp_path: Path, state: State) -> AsyncIterator[CheckpointWriter]:
    writer = CheckpointWriter(tmp_path, state.current)
    yield writer
    # not for long: one that the test has closed has no thread that could answer
    await writer.close(0.1)


async def saved(writer: CheckpointWriter, state: State, checkpoint: Checkpoint) -> None:
    state.checkpoint = checkpoint
    await writer.flushed(writer.request())


def holder(state_dir: Path) -> str:
    read = checkpoint_file.read(state_dir)
    assert read is not None
    return read.allocations[0].pod_uid


def alone(state_dir: Path) -> str:
    """The pod in the checkpoint's file, without the journal."""
    return decode((state_dir / FILE_NAME).read_text()).allocations[0].pod_uid


class TestWriting:
    async def test_is_on_disk_when_flushed(self, tmp_path: Path, writer: CheckpointWriter, state: State) -> None:
        await saved(writer, state, held_by("uid-a"))
        assert holder(tmp_path) == "uid-a"
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
        await writer.close(PATIENCE_SECONDS)
        assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]

    async def test_writes_the_boot_id(self, tmp_path: Path, writer: CheckpointWriter) -> None:
        await writer.flushed(writer.request())
        read = checkpoint_file.read(tmp_path)
        assert read is not None
        assert read.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    async def test_many_requests_become_few_writes(
        self, tmp_path: Path, writer: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes = []
        write = filesystem.replace_durably

        def count(path: Path, text: str) -> None:
            writes.append(text)
            write(path, text)

        monkeypatch.setattr(filesystem, "replace_durably", count)
        for index in range(100):
            state.checkpoint = held_by(f"uid-{index}")
            last = writer.request()
        await writer.flushed(last)
        assert holder(tmp_path) == "uid-99"
        assert len(writes) == 1

    async def test_close_writes_a_requested_state(self, tmp_path: Path, writer: CheckpointWriter, state: State) -> None:
        state.checkpoint = held_by("uid-a")
        writer.request()
        await writer.close(PATIENCE_SECONDS)
        assert holder(tmp_path) == "uid-a"

    async def test_close_writes_nothing_without_a_request(self, tmp_path: Path, writer: CheckpointWriter) -> None:
        await writer.close(PATIENCE_SECONDS)
        assert list(tmp_path.iterdir()) == []

    async def test_close_waits_for_the_write_under_way_and_saves_later_changes(
        self, tmp_path: Path, writer: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
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
        state.checkpoint = held_by("uid-a")
        writer.request()
        assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        state.checkpoint = held_by("uid-b")
        writer.request()
        asyncio.get_running_loop().call_soon(may_go_on.set)
        await writer.close(PATIENCE_SECONDS)
        assert alone(tmp_path) == "uid-b"
        assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]

    async def test_a_full_disk_is_logged_once_and_retried(
        self,
        tmp_path: Path,
        writer: CheckpointWriter,
        state: State,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(checkpoint_writer, "_RETRY_SECONDS", 0.01)
        write, attempts = filesystem.replace_durably, []

        def full_at_first(path: Path, text: str) -> None:
            attempts.append(text)
            if len(attempts) <= 3:
                raise OSError(28, "No space left on device")
            write(path, text)

        monkeypatch.setattr(filesystem, "replace_durably", full_at_first)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await saved(writer, state, held_by("uid-a"))
        assert (holder(tmp_path), len(attempts)) == ("uid-a", 4)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [(r.getMessage()[:28], r.__dict__["error"]) for r in errors] == [
            ("cannot write the checkpoint;", "No space left on device")
        ]

    async def test_a_disk_that_takes_nothing_is_not_waited_for(
        self, tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def full(path: Path, text: str) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(filesystem, "replace_durably", full)
        writer = CheckpointWriter(tmp_path, state.current)
        writer.request()
        await writer.close(0.05)
        assert "the last checkpoint was not written" in [record.getMessage() for record in caplog.records]


class TestLines:
    """Writes after the first one, which the whole file follows only where a test wants it."""

    @pytest.fixture
    async def begun(self, writer: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch) -> CheckpointWriter:
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 3600.0)
        await saved(writer, state, held_by("uid-a"))
        return writer

    async def test_the_whole_file_follows_by_itself(
        self, tmp_path: Path, begun: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 0.01)
        loop, is_written = asyncio.get_running_loop(), asyncio.Event()
        save = CheckpointStore.save

        def reported(self: CheckpointStore, checkpoint: Checkpoint, *, whole: bool = False) -> None:
            save(self, checkpoint, whole=whole)
            if whole:
                loop.call_soon_threadsafe(is_written.set)

        monkeypatch.setattr(CheckpointStore, "save", reported)
        await saved(begun, state, held_by("uid-b"))
        assert holder(tmp_path) == "uid-b"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await is_written.wait()
        assert alone(tmp_path) == "uid-b"

    async def test_until_then_it_is_the_journal_that_has_it(
        self, tmp_path: Path, begun: CheckpointWriter, state: State
    ) -> None:
        for uid in ("uid-b", "uid-c"):
            await saved(begun, state, held_by(uid))
            assert (holder(tmp_path), alone(tmp_path)) == (uid, "uid-a")

    async def test_the_health_of_devices_waits_for_the_whole_file(
        self, tmp_path: Path, begun: CheckpointWriter, state: State
    ) -> None:
        """A restart uses only the names of the resources; a name that is new is a line."""
        healthy = replace(held_by("uid-a"), registered={"example.com/gpu": ("d0", "d1")})
        await saved(begun, state, healthy)
        await saved(begun, state, replace(healthy, registered={"example.com/gpu": ("d0",)}))
        read = checkpoint_file.read(tmp_path)
        assert read is not None
        assert read.registered == healthy.registered
        await begun.close(PATIENCE_SECONDS)
        assert decode((tmp_path / FILE_NAME).read_text()).registered == state.checkpoint.registered

    async def test_the_health_of_devices_alone_makes_the_whole_file_follow(
        self, tmp_path: Path, writer: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 0.01)
        healthy = replace(held_by("uid-a"), registered={"example.com/gpu": ("d0", "d1")})
        await saved(writer, state, healthy)
        await saved(writer, state, replace(healthy, registered={"example.com/gpu": ("d0",)}))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while decode((tmp_path / FILE_NAME).read_text()).registered != state.checkpoint.registered:
                await asyncio.sleep(0.01)

    async def test_changes_during_a_write_share_the_next_line(
        self, tmp_path: Path, begun: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
            state.checkpoint = held_by(f"uid-{index}")
            number = begun.request()
            assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        last = asyncio.create_task(begun.flushed(number))
        await asyncio.sleep(0)
        assert not last.done()
        may_go_on.set()
        await last
        assert holder(tmp_path) == "uid-49"
        assert len(lines) == 2

    async def test_close_leaves_the_whole_file_and_no_journal(
        self, tmp_path: Path, begun: CheckpointWriter, state: State
    ) -> None:
        await saved(begun, state, held_by("uid-b"))
        assert alone(tmp_path) == "uid-a"
        await begun.close(PATIENCE_SECONDS)
        assert alone(tmp_path) == "uid-b"
        assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]
