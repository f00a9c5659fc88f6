"""After a kill at any step of any write, a state is read back that was passed to save(), and none older than the last saved one."""

import errno
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint import format as checkpoint_format
from nodedevice_agent.checkpoint import writer as checkpoint_writer
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.writer import CheckpointStore
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from tests.unit.node_agent.checkpoint.samples import GPU, read
from tests.unit.node_agent.checkpoint.test_files import failing

JOURNAL = f"{FILE_NAME}.journal"
_STEPS = ("open", "write", "pwrite", "fsync", "fdatasync", "replace")


def state(number: int) -> Checkpoint:
    """States differ in the registered devices; pods come and go, and pass the same two devices on."""
    holders = [f"uid-{number}", f"uid-{number // 3}x"]
    allocations = (Allocation(uid, "main", GPU, {-1: (f"d{n}",)}, b"ok" * number) for n, uid in enumerate(holders))
    return Checkpoint(tuple(allocations), {GPU: (str(number),)}, "boot-1")


def number_of(found: Checkpoint | None) -> int:
    """Which state was read, whole; -1 where there is none."""
    if found is None:
        return -1
    number = int(found.registered[GPU][0])
    assert sorted(found.allocations, key=lambda a: a.device_ids) == list(state(number).allocations)
    return number


class Killed(BaseException):
    """Not caught by anything, as a kill is not."""


@contextmanager
def killed_at(step: int, share: float) -> Iterator[list[str]]:
    """The process ends at that step, with this share of what it was about to write written.

    Yields the names of the steps, of which the last one is that.
    """
    left, patched = step, pytest.MonkeyPatch()
    names: list[str] = []

    def stepping(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def ends(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            names.append(name)
            if left == 0 and "write" in name:
                descriptor, octets, *position = arguments
                real(descriptor, bytes(octets)[: int(len(octets) * share)], *position)
            if left <= 0:
                raise Killed
            return real(*arguments, **more)

        return ends

    for name in _STEPS:
        patched.setattr(os, name, stepping(name))
    try:
        yield names
    except Killed:
        pass
    finally:
        patched.undo()


LIVES = st.lists(
    st.tuples(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 40), st.floats(0, 1)),
    min_size=1,
    max_size=3,
)


@settings(deadline=None)  # each example flushes a dozen files, which takes a busy disk a second
@given(LIVES)
def test_a_kill_at_any_step_loses_nothing_that_was_saved(lives: list[tuple[list[bool], int, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        number = saved = -1
        for saves, step, share in lives:
            store = CheckpointStore(folder)
            with killed_at(step, share):
                for whole in saves:
                    number += 1
                    store.save(state(number), whole=whole)
                    saved = number
            found = number_of(checkpoint_file.read(folder))
            assert saved <= found <= number
            # the next life continues from what it reads
            number = saved = found


@pytest.mark.parametrize("lines", [1, 3])
def test_a_kill_while_a_full_journal_is_replaced(tmp_path: Path, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # a file is replaced in six steps, and then the journal in five: opened and thus empty, filled with zeros, flushed
    killed: list[str] = []
    for step, percent in product(range(7, 13), range(0, 101, 5)):
        # only what is written can be written in part
        if percent and "write" not in killed[-1]:
            continue
        store = CheckpointStore(tmp_path)
        for number in range(lines + 1):
            store.save(state(number))
        monkeypatch.setattr(checkpoint_writer, "JOURNAL_BYTES", len((tmp_path / JOURNAL).read_bytes().rstrip(b"\0")))
        with killed_at(step, percent / 100) as steps:
            store.save(state(lines), whole=True)
        killed.append(steps[-1])
        monkeypatch.undo()
        assert number_of(checkpoint_file.read(tmp_path)) == lines
        store.close()
    assert "pwrite" in killed


class OpenStore(CheckpointStore):
    """A store, and what is in its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.journal = folder / JOURNAL

    def save_each(self, *numbers: int) -> None:
        for number in numbers:
            self.save(state(number))

    def read(self) -> int:
        return number_of(checkpoint_file.read(self.folder))

    def alone(self) -> int:
        return number_of(decode((self.folder / FILE_NAME).read_text()))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore]:
    store = OpenStore(tmp_path)
    yield store
    store.close()


class TestSaving:
    def test_the_first_is_whole_and_the_next_a_line(self, store: OpenStore) -> None:
        store.save(state(0))
        assert (store.alone(), store.is_whole) == (0, True)
        store.save(state(1))
        assert (store.alone(), store.is_whole) == (0, False)
        assert store.read() == 1
        assert store.journal.stat().st_mode & 0o777 == 0o600
        assert store.journal.stat().st_size == checkpoint_writer.JOURNAL_BYTES

    def test_a_line_costs_one_flush_and_nothing_else_and_a_file_all_it_takes(self, store: OpenStore) -> None:
        store.save(state(0))
        with killed_at(1000, 1) as steps:
            store.save(state(1))
            assert steps == ["pwrite", "fdatasync"]
            steps.clear()
            store.save(state(1), whole=True)
        assert steps == ["open", "write", "fsync", "replace", "open", "fsync"]

    def test_an_unchanged_state_is_not_written_again(self, store: OpenStore) -> None:
        for number in (0, 1):
            store.save(state(number))
            before = (store.folder / FILE_NAME).stat().st_ino, store.journal.read_bytes()
            store.save(state(number))
            assert ((store.folder / FILE_NAME).stat().st_ino, store.journal.read_bytes()) == before

    def test_the_whole_file_includes_the_journal(self, store: OpenStore) -> None:
        store.save_each(0, 1)
        store.save(state(1), whole=True)
        assert (store.alone(), store.is_whole) == (1, True)
        assert store.read() == 1
        store.save(state(2))
        assert (store.alone(), store.read()) == (1, 2)

    def test_a_half_full_journal_is_emptied_with_a_file(
        self, store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoint_writer, "JOURNAL_BYTES", 1000)
        store.save_each(0, 1, 2)
        assert store.journal.read_bytes().strip(b"\0")
        store.save(state(2), whole=True)
        assert not store.journal.read_bytes().strip(b"\0")
        store.save(state(3))
        assert store.read() == 3

    def test_a_full_journal_causes_a_whole_file(self, store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoint_writer, "JOURNAL_BYTES", 1000)
        wholes = set()
        for number in range(20):
            store.save(state(number))
            wholes.add(store.alone())
            assert store.read() == number
        assert 2 < len(wholes) < 20
        assert store.journal.stat().st_size == 1000


class TestTrouble:
    @pytest.mark.parametrize("step", ["pwrite", "fdatasync"])
    def test_a_journal_that_cannot_be_written_costs_no_state(
        self, store: OpenStore, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.save_each(0, 1)
        monkeypatch.setattr(os, step, failing(errno.ENOSPC))
        for number in (2, 3):
            store.save(state(number))
            assert (store.alone(), store.is_whole) == (number, True)
        (record,) = caplog.records
        assert (record.levelno, record.__dict__["error"]) == (logging.WARNING, "No space left on device")
        monkeypatch.undo()
        store.save_each(4, 5)
        assert (store.read(), store.is_whole) == (5, False)

    def test_no_line_is_written_after_a_failed_file(self, store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is unknown then what is on disk, and a line continues from exactly that."""
        store.save_each(0, 1)
        monkeypatch.setattr(os, "replace", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            store.save(state(2), whole=True)
        assert store.read() == 1
        monkeypatch.undo()
        store.save(state(3))
        assert store.alone() == 3

    def test_no_file_is_written_that_could_not_be_read(self, store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        store.save(state(0))
        # its line is bigger than any journal
        big = Allocation("uid-0", "main", GPU, {-1: ("d0",)}, bytes(checkpoint_writer.JOURNAL_BYTES))
        monkeypatch.setattr(checkpoint_writer, "MAX_BYTES", 300_000)
        with pytest.raises(OSError, match="bigger than 300000 bytes"):
            store.save(Checkpoint((big,)))
        assert store.read() == 0
        monkeypatch.undo()
        store.save(Checkpoint((big,)))
        assert read(store.folder).allocations == (big,)
        # device lists are not needed
        monkeypatch.setattr(checkpoint_format, "_MAX_REGISTERED_BYTES", 200_000)
        store.save(replace(state(0), registered={GPU: tuple(f"{n:<<120}" for n in range(2500))}))
        assert read(store.folder) == replace(state(0), registered={GPU: ()}, journal=read(store.folder).journal)

    def test_something_else_in_the_journals_place(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / JOURNAL).mkdir()
        store = OpenStore(tmp_path)
        for number in (0, 1):
            store.save(state(number))
            assert store.alone() == number
        store.close()
        assert len(caplog.records) == 1


class TestEnd:
    def test_nothing_but_the_checkpoint_is_left_where_it_is_whole(self, store: OpenStore) -> None:
        store.save_each(0, 1)
        store.save(state(1), whole=True)
        store.close()
        assert store.names() == [FILE_NAME]

    def test_a_journal_that_is_needed_stays(self, store: OpenStore) -> None:
        store.save_each(0, 1)
        store.close()
        assert store.names() == [FILE_NAME, JOURNAL]
        assert store.read() == 1

    def test_a_journal_without_its_checkpoint_is_ignored(self, store: OpenStore) -> None:
        self.test_a_journal_that_is_needed_stays(store)
        (store.folder / FILE_NAME).unlink()
        assert checkpoint_file.read(store.folder) is None
        again = OpenStore(store.folder)
        again.save(state(5))
        assert again.read() == 5
        again.close()
