"""The checkpoint's journal: a line for each change since the checkpoint was written.

A line is the whole difference between two states. A device that moves from one pod to another does so in one line, so no
device has two pods after any number of lines. Format: `CRC-32 JSON\n`, then zeros up to the end of the file.

The checkpoint names the last line that it includes. Lines up to there, and lines of another process (generation), are skipped.
An incomplete last line is a write that a kill or a power cut interrupted: its content was never published, and it is dropped. A
complete line with a wrong checksum is damage: its content may be published.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any
from zlib import crc32

from msgspec import structs
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.checkpoint import fields
from nodedevice_agent.checkpoint.fields import Entry
from nodedevice_agent.checkpoint.format import check_consistent
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt, JournalMark

_CRC_DIGITS = 8


class _Line(fields.BesideFields, frozen=True, omit_defaults=True):
    """One change, without fields that are unchanged.

    Released: keys of released entries. PodDeviceEntries: new or changed ones. RegisteredDevices: only changes; None for a resource
    that is gone.
    """

    Generation: str
    Sequence: int
    Released: tuple[AllocationKey, ...] = ()
    PodDeviceEntries: tuple[Entry, ...] = ()
    RegisteredDevices: dict[str, tuple[str, ...] | None] = {}


def encode_change(before: Checkpoint, after: Checkpoint, mark: JournalMark) -> bytes | None:
    """The line that leads from one state to the next; None if nothing but the order of entries differs. mark: its position."""
    released, entered = _moved(before.allocations, after.allocations)
    registered: dict[str, tuple[str, ...] | None] = dict.fromkeys(before.registered.keys() - after.registered.keys())
    changed = (name for name, ids in after.registered.items() if before.registered.get(name) != ids)
    registered |= {name: fields.original_ids(after.registered[name]) for name in changed}
    values = [(field, getattr(before, field.attribute), getattr(after, field.attribute)) for field in fields.WHOLE]
    beside = {field.name: field.write(value) for field, earlier, value in values if value != earlier}
    beside |= fields.beside_entries(entered)
    entries = tuple(map(fields.to_entry, entered))
    line = _Line(mark.generation, mark.sequence, released, entries, registered, **beside)
    if line == _Line(mark.generation, mark.sequence):
        return None
    octets = fields.to_json(line).encode()
    return b"%08x %b\n" % (crc32(octets), octets)


def replayed(checkpoint: Checkpoint, journal: bytes) -> Checkpoint:
    """The checkpoint with the lines of its journal that it does not include yet. Raises CheckpointCorrupt."""
    lines, mark = _lines(journal), checkpoint.journal
    if mark is None:
        if lines:
            raise CheckpointCorrupt("there is a journal, and the checkpoint does not name its position in it")
        return checkpoint
    newer = _newer(lines, mark)
    if not newer:
        return checkpoint
    entries = {allocation.key: allocation for allocation in checkpoint.allocations}
    registered: dict[str, tuple[str, ...] | None] = dict(checkpoint.registered)
    wholes: dict[str, Any] = {}
    for line in newer:
        for key in line.Released:
            entries.pop(key, None)
        changed = fields.from_entries(line.PodDeviceEntries, line)
        entries |= {allocation.key: allocation for allocation in changed}
        registered |= {n: ids if ids is None else fields.shown_ids(ids) for n, ids in line.RegisteredDevices.items()}
        wholes |= {f.attribute: f.read(value) for f in fields.WHOLE if (value := getattr(line, f.name)) is not None}
    check_consistent(entries.values())
    return structs.replace(
        checkpoint,
        allocations=tuple(entries.values()),
        registered={name: ids for name, ids in registered.items() if ids is not None},
        journal=structs.replace(mark, sequence=mark.sequence + len(newer)),
        **wholes,
    )


def _moved(
    before: tuple[Allocation, ...], after: tuple[Allocation, ...]
) -> tuple[tuple[AllocationKey, ...], list[Allocation]]:
    """Keys that are gone, and allocations that are new or changed. The common beginning is only compared by identity."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(before, after, strict=False)))
    earlier = {allocation.key: allocation for allocation in before[same:]}
    entered = [allocation for allocation in after[same:] if earlier.pop(allocation.key, None) != allocation]
    return tuple(earlier), entered


def _lines(journal: bytes) -> list[_Line | None]:
    """Lines in order; None for a damaged one. An incomplete last line is left out. Raises CheckpointCorrupt."""
    *ended, rest = journal.split(b"\n")
    # of the last line, only the end may be missing or damaged
    last = rest.strip(b"\0")
    is_whole = _decoded(last) is not None or _decoded(last[:-1]) is not None
    return [_decoded(piece) for piece in ([*ended, rest.rstrip(b"\0")] if is_whole else ended)]


def _decoded(octets: bytes) -> _Line | None:
    """Returns None if the checksum is wrong. Raises CheckpointCorrupt if it is right and the content is invalid."""
    content = octets[_CRC_DIGITS + 1 :]
    if octets[: _CRC_DIGITS + 1] != b"%08x " % crc32(content):
        return None
    try:
        return decode(content, _Line)
    except Undecodable as exc:
        raise CheckpointCorrupt(f"a line of the journal lacks a field, or has one of the wrong kind: {exc}") from exc


def _newer(lines: Sequence[_Line | None], mark: JournalMark) -> list[_Line]:
    """The lines that the checkpoint does not include, without a gap; damage before a line that it includes is harmless. Raises
    CheckpointCorrupt.
    """
    newer: list[_Line | None] = []
    for line in lines:
        if line is None or (line.Generation == mark.generation and line.Sequence > mark.sequence):
            newer.append(line)
        elif not any(newer):
            newer.clear()
    found = []
    for expected, line in enumerate(newer, mark.sequence + 1):
        if line is None:
            raise CheckpointCorrupt(f"line {expected} of the journal is damaged")
        if line.Sequence != expected:
            raise CheckpointCorrupt(f"line {expected} of the journal is missing; line {line.Sequence} is there")
        found.append(line)
    return found
