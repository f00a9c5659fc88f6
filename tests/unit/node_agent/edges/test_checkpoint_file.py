"""The checkpoint on disk: whole or not at all, one write at a time, and set aside when it cannot be believed."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.core.allocations import Allocation
from nodedevice_agent.core.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.edges import checkpoint_file
from nodedevice_agent.edges.checkpoint_file import FILE_NAME, CheckpointWriter

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 30


def held_by(uid: str) -> Checkpoint:
    return Checkpoint((Allocation(uid, "main", "example.com/gpu", {-1: ("d0",)}, b"ok"),))


class State:
    """What the writer is to write."""

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
    await writer.close(PATIENCE_SECONDS)


def holder(state_dir: Path) -> str:
    read = checkpoint_file.read(state_dir)
    assert read is not None
    return read.allocations[0].pod_uid


class TestReading:
    def test_there_is_none(self, tmp_path: Path) -> None:
        assert checkpoint_file.read(tmp_path) is None

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"\xff\xfe", id="no text"),
            pytest.param(b"\x00" * 4096, id="zeros"),
            pytest.param(b'{"Data":{}}', id="another JSON"),
        ],
    )
    def test_what_is_no_checkpoint_is_corrupt(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / FILE_NAME).write_bytes(content)
        with pytest.raises(CheckpointCorrupt):
            checkpoint_file.read(tmp_path)

    def test_a_folder_in_its_place_is_corrupt(self, tmp_path: Path) -> None:
        (tmp_path / FILE_NAME).mkdir()
        with pytest.raises(CheckpointCorrupt, match="directory"):
            checkpoint_file.read(tmp_path)

    def test_each_that_is_set_aside_is_kept(self, tmp_path: Path) -> None:
        asides = []
        for content in ("first", "second"):
            (tmp_path / FILE_NAME).write_text(content)
            asides.append(checkpoint_file.set_aside(tmp_path))
        assert [aside.read_text() for aside in asides] == ["first", "second"]
        assert not (tmp_path / FILE_NAME).exists()


class TestWriting:
    async def test_is_on_disk_when_flushed(self, tmp_path: Path, writer: CheckpointWriter, state: State) -> None:
        state.checkpoint = held_by("uid-a")
        await writer.flushed(writer.request())
        assert holder(tmp_path) == "uid-a"
        assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
        assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]

    async def test_says_which_boot_it_was(self, tmp_path: Path, writer: CheckpointWriter) -> None:
        await writer.flushed(writer.request())
        read = checkpoint_file.read(tmp_path)
        assert read is not None
        assert read.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    async def test_many_requests_become_few_writes(
        self, tmp_path: Path, writer: CheckpointWriter, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writes = []
        write = checkpoint_file.write

        def count(path: Path, text: str) -> None:
            writes.append(text)
            write(path, text)

        monkeypatch.setattr(checkpoint_file, "write", count)
        for index in range(100):
            state.checkpoint = held_by(f"uid-{index}")
            last = writer.request()
        await writer.flushed(last)
        assert holder(tmp_path) == "uid-99"
        assert len(writes) == 1

    async def test_what_is_owed_at_the_end_is_written(self, tmp_path: Path, state: State) -> None:
        writer = CheckpointWriter(tmp_path, state.current)
        state.checkpoint = held_by("uid-a")
        writer.request()
        await writer.close(PATIENCE_SECONDS)
        assert holder(tmp_path) == "uid-a"

    async def test_nothing_is_written_at_the_end_that_nobody_asked_for(self, tmp_path: Path, state: State) -> None:
        await CheckpointWriter(tmp_path, state.current).close(PATIENCE_SECONDS)
        assert list(tmp_path.iterdir()) == []

    async def test_an_end_in_the_middle_of_a_write_waits_for_it(
        self, tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two writers of one temporary file would make a mixture of both."""
        began, may_go_on = threading.Event(), threading.Event()
        write, at_once = checkpoint_file.write, []

        def slow(path: Path, text: str) -> None:
            at_once.append(1)
            assert len(at_once) == 1, "two writes at once"
            began.set()
            assert may_go_on.wait(PATIENCE_SECONDS)
            write(path, text)
            at_once.clear()

        monkeypatch.setattr(checkpoint_file, "write", slow)
        writer = CheckpointWriter(tmp_path, state.current)
        state.checkpoint = held_by("uid-a")
        writer.request()
        assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        state.checkpoint = held_by("uid-b")
        writer.request()
        asyncio.get_running_loop().call_soon(may_go_on.set)
        await writer.close(PATIENCE_SECONDS)
        assert holder(tmp_path) == "uid-b"

    async def test_a_full_disk_is_said_once_and_tried_until_it_works(
        self,
        tmp_path: Path,
        writer: CheckpointWriter,
        state: State,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(checkpoint_file, "_RETRY_SECONDS", 0.01)
        write, attempts = checkpoint_file.write, []

        def full_at_first(path: Path, text: str) -> None:
            attempts.append(text)
            if len(attempts) <= 3:
                raise OSError(28, "No space left on device")
            write(path, text)

        monkeypatch.setattr(checkpoint_file, "write", full_at_first)
        state.checkpoint = held_by("uid-a")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await writer.flushed(writer.request())
        assert (holder(tmp_path), len(attempts)) == ("uid-a", 4)
        said = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [(r.getMessage()[:28], r.__dict__["error"]) for r in said] == [
            ("checkpoint cannot be written", "No space left on device")
        ]

    async def test_a_disk_that_takes_nothing_is_not_waited_for(
        self, tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def full(path: Path, text: str) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(checkpoint_file, "write", full)
        writer = CheckpointWriter(tmp_path, state.current)
        writer.request()
        await writer.close(0.05)
        assert "the last checkpoint was not written" in [record.getMessage() for record in caplog.records]

    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_a_write_that_fails_leaves_the_old_file(
        self, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / FILE_NAME
        checkpoint_file.write(path, "old")

        def fails(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, step, fails)
        with pytest.raises(OSError, match="Input/output"):
            checkpoint_file.write(path, "new")
        assert path.read_text() == "old"
        monkeypatch.undo()
        checkpoint_file.write(path, "newer")
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [(FILE_NAME, "newer")]

    def test_a_folder_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="No such file"):
            checkpoint_file.write(tmp_path / "gone" / FILE_NAME, "text")
