"""Reads a machine's log of disk writes, in order, with the flushes between: a power cut at any of them can be replayed.

QEMU's blklogwrites writes it, in the format of Linux' dm-log-writes: a super block, then for each request a header of
one sector, followed by the data.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SECTOR = 512
_MAGIC = 0x6A736677736872
_FLUSH, _DISCARD = 1, 4
_HEADER = struct.Struct("<QQQQ")
# discards are logged as zeros, piece by piece
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Request:
    """start, length: of the disk's bytes. at: position of the data in the log. is_flush: all earlier requests are
    durable.
    """

    start: int
    length: int
    at: int
    is_flush: bool
    is_discard: bool


def requests(log: BinaryIO) -> Iterator[Request]:
    """All completely logged requests. Raises ValueError for another kind of file."""
    magic, version = struct.unpack("<QQ", log.read(16))
    if magic != _MAGIC or version != 1:
        raise ValueError(f"no log of writes: magic {magic:#x}, version {version}")
    log.seek(0, 2)
    end, at = log.tell(), SECTOR
    while at + SECTOR <= end:
        log.seek(at)
        sector, count, flags, _ = _HEADER.unpack(log.read(_HEADER.size))
        is_discard = bool(flags & _DISCARD)
        following = at + SECTOR + (0 if is_discard else count * SECTOR)
        # the emulator ended before it logged the request
        if not (sector or count or flags) or following > end:
            return
        yield Request(sector * SECTOR, count * SECTOR, at + SECTOR, bool(flags & _FLUSH), is_discard)
        at = following


def flushes(path: Path) -> int:
    with path.open("rb") as log:
        return sum(request.is_flush for request in requests(log))


def replay(path: Path, disk: Path, after: int, up_to: int) -> None:
    """Write to `disk` all requests between two flushes, counted from 0 for the begin: the disk after a power cut at
    `up_to`.
    """
    with path.open("rb") as log, disk.open("r+b") as file:
        passed = 0
        for request in requests(log):
            if passed >= after:
                _apply(request, log, file)
            passed += request.is_flush
            if passed >= up_to:
                return


def _apply(request: Request, log: BinaryIO, disk: BinaryIO) -> None:
    if request.is_flush and not request.length:
        return
    disk.seek(request.start)
    if not request.is_discard:
        log.seek(request.at)
        disk.write(log.read(request.length))
        return
    left = request.length
    while left > 0:
        left -= disk.write(bytes(min(left, _PIECE_BYTES)))
