"""Journals of any content beside a good checkpoint: a state that the agent can go on with, or CheckpointCorrupt."""

from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import strategies as st
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.checkpoint.journal import encode_change
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, CheckpointCorrupt, JournalMark

from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import as_json, mostly, nearly, shaped, some, texts, values
from tests.robustness.fuzz.test_checkpoint import device_ids, entries, go_on_with, resource_names


def _state(number: int) -> Checkpoint:
    allocations = tuple(
        Allocation(f"uid-{number + n}", "main", "example.com/gpu", {n: (f"d{n}",)}, b"\x0a\x01") for n in range(2)
    )
    return Checkpoint(allocations, {"example.com/gpu": ("d0", "d1", "a" * number)}, "boot")


def _line(number: int) -> bytes:
    line = encode_change(_state(number - 1), _state(number), JournalMark("ours", number))
    assert line is not None
    return line


_GOOD = b"".join(map(_line, range(1, 5)))
_lines = st.lists(
    shaped(
        {
            "Generation": st.just("ours"),
            "Sequence": mostly(st.integers(0, 3)),
            "Released": some(some(mostly(st.sampled_from(["uid-0", "main", "example.com/gpu"]), texts))),
            "PodDeviceEntries": some(entries),
            "RegisteredDevices": st.dictionaries(resource_names, st.one_of(st.none(), device_ids), max_size=3),
            "Endpoints": some(shaped({"ResourceName": resource_names, "Endpoint": texts})),
            "PreStarts": values,
        }
    ),
    max_size=3,
)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Its checkpoint holds nothing of the journal."""
    checkpoint = encode(Checkpoint(_state(0).allocations, _state(0).registered, journal=JournalMark("ours", 0)))
    (tmp_path / checkpoint_file.FILE_NAME).write_text(checkpoint)
    return tmp_path


def read_and_go_on(state_dir: Path, journal: bytes) -> Checkpoint | None:
    """None where it is refused."""
    checkpoint_file.journal_path(state_dir / checkpoint_file.FILE_NAME).write_bytes(journal)
    try:
        found = checkpoint_file.read(state_dir)
    except CheckpointCorrupt:
        return None
    assert found is not None
    go_on_with(found, state_dir)
    return found


def test_any_bytes(fuzz: Fuzzer, state_dir: Path) -> None:
    """Changed, cut, doubled: also then it is one of the states that were."""
    were = {repr(sorted(map(repr, _state(number).allocations))) for number in range(5)}

    def check(content: bytes) -> None:
        found = read_and_go_on(state_dir, content)
        assert found is None or repr(sorted(map(repr, found.allocations))) in were

    fuzz(check, nearly([_GOOD, _GOOD + bytes(100), _line(1), _line(1) + _GOOD]))


def test_one_flipped_bit(fuzz: Fuzzer, state_dir: Path) -> None:
    """In any line, also the last one: its content may be published, so it must not be dropped."""

    def check(place: tuple[int, int, bytes]) -> None:
        position, bit, room = place
        flipped = bytearray(_GOOD)
        flipped[position] ^= 1 << bit
        assert read_and_go_on(state_dir, bytes(flipped) + room) is None

    rooms = st.sampled_from([b"", bytes(100)])
    fuzz(check, st.tuples(st.integers(0, len(_GOOD) - 1), st.integers(0, 7), rooms))


def test_any_content_with_the_right_checksum(fuzz: Fuzzer, state_dir: Path) -> None:
    def check(lines: Any) -> None:
        journal = b""
        for line in lines:
            content = as_json(line)
            journal += b"%08x %b\n" % (crc32(content), content)
        read_and_go_on(state_dir, journal)

    fuzz(check, _lines)


def test_the_seed_itself_is_read(state_dir: Path) -> None:
    found = read_and_go_on(state_dir, _GOOD + bytes(100))
    assert found is not None
    assert found.journal == JournalMark("ours", 4)
