"""A log of writes is read up to where the machine ended, and replayed up to any flush."""

import struct
from pathlib import Path

import pytest

from hack.machine.write_log import SECTOR, flushes, replay

_MAGIC = 0x6A736677736872
Entry = tuple[int, bytes, int]


def written(path: Path, *entries: Entry, rest: bytes = b"") -> Path:
    log = struct.pack("<QQQI", _MAGIC, 1, len(entries), SECTOR).ljust(SECTOR, b"\0")
    for sector, data, flags in entries:
        log += struct.pack("<QQQQ", sector, len(data) // SECTOR, flags, 0).ljust(SECTOR, b"\0")
        log += b"" if flags & 4 else data
    path.write_bytes(log + rest)
    return path


def sectors(text: str) -> bytes:
    return b"".join(letter.encode() * SECTOR for letter in text)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.write_bytes(sectors("......"))
    return disk


def shown(disk: Path) -> str:
    content = disk.read_bytes()
    return "".join(chr(content[at] or ord("0")) for at in range(0, len(content), SECTOR))


FLUSH: Entry = (0, b"", 1)


def test_each_flush_is_a_point_in_time(tmp_path: Path, disk: Path) -> None:
    log = written(
        tmp_path / "log",
        (0, sectors("ab"), 0),
        FLUSH,
        (1, sectors("c"), 0),
        (4, sectors("zz"), 4),
        FLUSH,
        (5, sectors("d"), 0),
    )
    assert flushes(log) == 2
    replay(log, disk, 0, 1)
    assert shown(disk) == "ab...."
    replay(log, disk, 1, 2)
    assert shown(disk) == "ac..00"


def test_what_was_not_wholly_logged_did_not_happen(tmp_path: Path, disk: Path) -> None:
    half = struct.pack("<QQQQ", 3, 2, 0, 0).ljust(SECTOR, b"\0") + sectors("x")
    log = written(tmp_path / "log", (0, sectors("a"), 0), FLUSH, rest=half)
    replay(log, disk, 0, 9)
    assert shown(disk) == "a....."


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * SECTOR)
    with pytest.raises(ValueError, match="no log of writes"):
        flushes(tmp_path / "log")
