"""The checkpoint on disk: restored with its journal, replaced whole or not at all, and kept aside when it is invalid."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.files import FILE_NAME, ID_FILE_NAME, agent_id, locked_state_dir, make_state_dir
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.checkpoint.journal import encode_change
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt, JournalMark
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_agent.errors import AgentSettingsError, StateDirectoryUsed
from nodedevice_agent.lib import filesystem
from prometheus_client import REGISTRY

from tests.unit.node_agent.checkpoint.samples import held_by, read

JOURNAL = f"{FILE_NAME}.journal"


def written(uid: str, sequence: int) -> str:
    """A checkpoint that holds the journal up to there."""
    return encode(structs.replace(held_by(uid), journal=JournalMark("ours", sequence)))


def line(before: str, after: str, sequence: int) -> bytes:
    encoded = encode_change(held_by(before), held_by(after), JournalMark("ours", sequence))
    assert encoded is not None
    return encoded


def left_with_a_journal(state_dir: Path) -> None:
    (state_dir / FILE_NAME).write_text(written("uid-a", 1))
    (state_dir / JOURNAL).write_bytes(line("uid-a", "uid-b", 2))


def holder(state_dir: Path) -> str:
    return read(state_dir).allocations[0].pod_uid


def failing(number: int) -> Callable[..., Any]:
    """A system call that fails so."""

    def fails(*paths: object, **_: object) -> Any:
        raise OSError(number, os.strerror(number), *paths[:1])

    return fails


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


class TestReading:
    @pytest.mark.parametrize("name", [FILE_NAME, JOURNAL])
    @pytest.mark.parametrize(
        ("make", "why"),
        [
            pytest.param(os.mkdir, "directory", id="a folder"),
            pytest.param(os.mkfifo, "not a regular file", id="a pipe, which is not waited for"),
            pytest.param(endless, "bigger than", id="a file that is too big, and not read"),
        ],
    )
    def test_what_is_corrupt(self, tmp_path: Path, name: str, make: Callable[[Path], None], why: str) -> None:
        (tmp_path / FILE_NAME).write_text(written("uid-a", 1))
        (tmp_path / name).unlink(missing_ok=True)
        make(tmp_path / name)
        with pytest.raises(CheckpointCorrupt, match=why) as corrupt:
            checkpoint_file.read(tmp_path)
        assert str(tmp_path / name) in str(corrupt.value)
        checkpoint_file.set_aside(tmp_path)
        assert checkpoint_file.read(tmp_path) is None

    def test_impossible_names_are_corrupt(self, tmp_path: Path) -> None:
        impossible = Checkpoint((Allocation("uid-a", "main", "no name", {-1: ("d0",)}, b"ok"),))
        (tmp_path / FILE_NAME).write_text(encode(impossible))
        with pytest.raises(CheckpointCorrupt, match="resource name 'no name'"):
            checkpoint_file.read(tmp_path)

    def test_a_file_that_cannot_be_moved_aside_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "replace", failing(errno.EROFS))
        why = rf"--state-dir .*{FILE_NAME} is invalid and cannot be moved.*Read-only.*move the file"
        with pytest.raises(AgentSettingsError, match=why):
            checkpoint_file.set_aside(tmp_path)

    def test_each_that_is_set_aside_is_kept(self, tmp_path: Path) -> None:
        asides = []
        for content in ("first", "second"):
            (tmp_path / FILE_NAME).write_text(content)
            asides.append(checkpoint_file.set_aside(tmp_path))
        assert [aside.read_text() for aside in asides] == ["first", "second"]
        assert not (tmp_path / FILE_NAME).exists()

    def test_a_checkpoint_that_is_replaced_meanwhile_does_not_meet_a_journal_emptied_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left_with_a_journal(tmp_path)
        read_journal = checkpoint_file._read_journal

        def overtaken(path: Path) -> bytes:
            if holder_alone(tmp_path) == "uid-a":
                (tmp_path / FILE_NAME).write_text(written("uid-b", 3))
                (tmp_path / JOURNAL).write_bytes(line("uid-b", "uid-c", 4))
            return read_journal(path)

        monkeypatch.setattr(checkpoint_file, "_read_journal", overtaken)
        assert holder(tmp_path) == "uid-c"

    def test_a_line_read_while_written_is_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / FILE_NAME).write_text(written("uid-a", 1))
        whole = line("uid-a", "uid-b", 2)
        # the first bytes were read before they were written, and the rest after
        reads = iter([bytes(20) + whole[20:]])
        monkeypatch.setattr(checkpoint_file, "_read_journal", lambda path: next(reads, whole))
        assert holder(tmp_path) == "uid-b"


def holder_alone(state_dir: Path) -> str:
    return decode((state_dir / FILE_NAME).read_text()).allocations[0].pod_uid


class TestRestoring:
    """What the agent starts from."""

    def test_a_journal_of_an_earlier_process_is_folded_into_the_file(self, tmp_path: Path) -> None:
        left_with_a_journal(tmp_path)
        restored, note = checkpoint_file.restore(tmp_path)
        assert restored is not None
        assert (restored.allocations[0].pod_uid, note) == ("uid-b", "")
        assert holder_alone(tmp_path) == "uid-b"
        assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]

    def test_a_read_only_disk_keeps_the_journal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        left_with_a_journal(tmp_path)
        monkeypatch.setattr(filesystem, "replace_durably", failing(errno.EROFS))
        restored, _ = checkpoint_file.restore(tmp_path)
        assert restored is not None
        assert holder(tmp_path) == restored.allocations[0].pod_uid == "uid-b"

    @pytest.mark.parametrize("is_rebooted", [False, True])
    def test_a_reboot_ends_every_process(self, tmp_path: Path, is_rebooted: bool) -> None:
        unlisted = (UnlistedContainer("uid-a", "main", "c", "s"),)
        boot_id = "another" if is_rebooted else filesystem.boot_id()
        (tmp_path / FILE_NAME).write_text(encode(Checkpoint(boot_id=boot_id, unlisted=unlisted)))
        restored, _ = checkpoint_file.restore(tmp_path)
        assert restored is not None
        assert restored.unlisted == (() if is_rebooted else unlisted)

    @pytest.mark.kubelet("scenario 62")
    def test_there_is_none(self, tmp_path: Path) -> None:
        assert checkpoint_file.restore(tmp_path) == (None, "")

    def test_an_invalid_one_is_kept_aside_and_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        left_with_a_journal(tmp_path)
        (tmp_path / FILE_NAME).write_text("broken")
        restored, note = checkpoint_file.restore(tmp_path)
        (aside,) = tmp_path.glob("*Z")
        assert restored is None
        assert f"it is kept as {aside.name}" in note
        assert sorted(tmp_path.iterdir()) == [aside, checkpoint_file.journal_path(aside)]
        assert [(record.levelname, record.__dict__["path"]) for record in caplog.records] == [("ERROR", str(aside))]
        assert REGISTRY.get_sample_value("nodedevice_agent_checkpoint_unreadable") == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_writes_keep_the_old_file(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    filesystem.replace_durably(path, "old")
    monkeypatch.setattr(os, step, failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        filesystem.replace_durably(path, "new")
    assert path.read_text() == "old"
    monkeypatch.undo()
    filesystem.replace_durably(path, "newer")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [(FILE_NAME, "newer")]


class TestStateDirectory:
    """One agent at a time in a state directory, for as long as it runs."""

    def test_only_root_may_write(self, tmp_path: Path) -> None:
        make_state_dir(tmp_path / "a/b")
        make_state_dir(tmp_path / "a/b")
        assert (tmp_path / "a/b").stat().st_mode & 0o027 == 0

    def test_a_second_agent_is_refused_until_the_first_has_ended(self, tmp_path: Path) -> None:
        with locked_state_dir(tmp_path):
            with pytest.raises(StateDirectoryUsed, match="state-dir of its own") as refused, locked_state_dir(tmp_path):
                pass
            assert refused.value.directory == str(tmp_path)
        with locked_state_dir(tmp_path):
            pass

    def test_a_path_below_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(AgentSettingsError, match=r"--state-dir .*file/x cannot be used: Not a directory"):
            make_state_dir(tmp_path / "file/x")

    def test_a_read_only_file_system_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "open", failing(errno.EROFS))
        with (
            pytest.raises(AgentSettingsError, match="cannot be used: Read-only file system; make it writable"),
            locked_state_dir(tmp_path),
        ):
            pass


class TestAgentId:
    def test_is_made_once_and_kept(self, tmp_path: Path) -> None:
        made = agent_id(tmp_path)
        assert len(made) == 32
        assert agent_id(tmp_path) == made
        (tmp_path / "other").mkdir()
        assert agent_id(tmp_path / "other") != made

    @pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 32, b"../../../../etc/passwd/../../../"])
    def test_is_made_again_when_it_is_damaged(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / ID_FILE_NAME).write_bytes(content)
        made = agent_id(tmp_path)
        assert made.isalnum()
        assert agent_id(tmp_path) == made

    def test_without_a_place_it_is_new_at_each_start(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / ID_FILE_NAME).mkdir()
        assert agent_id(tmp_path) != agent_id(tmp_path)
        assert [record.getMessage() for record in caplog.records] == [
            "cannot write the agent's ID; the next start waits for the lease"
        ] * 2
