"""The journal beside a checkpoint: a line for each change since the checkpoint was written.

A line is what leads from one state to the next, whole: devices that one pod gives back and another gets stand in the same line, so
after any number of lines no device is held twice. `CRC-32 JSON\\n`; the JSON names the line's generation (whose journal it is) and
sequence number. The checkpoint says up to which line it holds; those lines, and lines of other generations, are passed over. A
line without its end is a write that a kill or a power cut ended, which nobody was told of: it ends what is read. One that has an
end and is not what was written is damage, and what it said may be known to others.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any
from zlib import crc32

from nodedevice_agent.checkpoint.entry import as_json, from_entry, text, texts, to_entry
from nodedevice_agent.checkpoint.format import (
    pre_starts_json,
    read_pre_starts,
    read_sockets,
    refuse_double_holders,
    sockets_json,
)
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt, JournalMark, PluginSocket

# Pod UID, container, resource name.
Key = tuple[str, str, str]

_SUM_DIGITS = 8
_BEGINNING = b' {"Generation":'


@dataclass(frozen=True, slots=True)
class Change:
    """released: entries that are gone. entered: new or changed ones. registered: only what changed; None: no longer known.

    sockets, pre_starts: all of them, or None where they are as before.
    """

    released: tuple[Key, ...] = ()
    entered: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    sockets: tuple[PluginSocket, ...] | None = None
    pre_starts: tuple[Key, ...] | None = None


def difference(before: Checkpoint, after: Checkpoint) -> Change | None:
    """What leads from one to the other, both of one boot; None where they are the same but for the order of entries."""
    released, entered = _moved(before.allocations, after.allocations)
    registered: dict[str, tuple[str, ...] | None] = {
        name: ids for name, ids in after.registered.items() if before.registered.get(name) != ids
    }
    registered |= dict.fromkeys(before.registered.keys() - after.registered.keys())
    change = Change(
        released,
        entered,
        registered,
        None if before.sockets == after.sockets else after.sockets,
        None if before.pre_starts == after.pre_starts else after.pre_starts,
    )
    return None if change == Change() else change


def encode_line(mark: JournalMark, change: Change) -> bytes:
    """mark: where in the journal the line stands."""
    line: dict[str, Any] = {"Generation": mark.generation, "Sequence": mark.sequence}
    if change.released:
        line["Released"] = [list(key) for key in change.released]
    if change.entered:
        line["PodDeviceEntries"] = [to_entry(allocation) for allocation in change.entered]
    if change.registered:
        line["RegisteredDevices"] = change.registered
    if change.sockets is not None:
        line["Endpoints"] = sockets_json(change.sockets)
    if change.pre_starts is not None:
        line["PreStarts"] = pre_starts_json(change.pre_starts)
    octets = as_json(line).encode("utf-8")
    return b"%08x %b\n" % (crc32(octets), octets)


def replayed(checkpoint: Checkpoint, journal: bytes) -> Checkpoint:
    """The checkpoint with those lines of its journal that it does not hold yet. Raises CheckpointCorrupt."""
    lines, rest = _intact(journal)
    mark = checkpoint.journal
    if mark is None:
        if lines or _was_whole(rest):
            raise CheckpointCorrupt("a journal lies beside it, and it does not say what of that it holds")
        return checkpoint
    newer = [line for line in lines if _is_newer(line, mark)]
    _refuse_damage(mark, lines, newer, rest)
    return _Replay(checkpoint).through(newer, mark) if newer else checkpoint


def _refuse_damage(
    mark: JournalMark, lines: Sequence[Mapping[str, Any]], newer: Sequence[Mapping[str, Any]], rest: bytes
) -> None:
    """Raises CheckpointCorrupt, but for what the checkpoint holds.

    A journal is emptied before anything newer stands in it: with a line that is held there is nothing to lose in it, and a power
    cut while it was emptied leaves such pieces.
    """
    behind = list(_scattered(rest))
    for line in behind:
        if _is_newer(line, mark):
            raise CheckpointCorrupt(f"the journal is damaged before its line {line['Sequence']}")
    if _was_whole(rest) and (newer or not any(_is_held(line, mark) for line in (*lines, *behind))):
        raise CheckpointCorrupt(f"line {mark.sequence + len(newer) + 1} of the journal is damaged")


class _Replay:
    """The state while lines are applied, one after another."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._held = {_key(allocation): allocation for allocation in checkpoint.allocations}
        self._registered = dict(checkpoint.registered)

    def through(self, lines: Sequence[Mapping[str, Any]], mark: JournalMark) -> Checkpoint:
        """Raises CheckpointCorrupt. mark: of the line before the first."""
        for expected, line in enumerate(lines, mark.sequence + 1):
            if line["Sequence"] != expected:
                raise CheckpointCorrupt(f"line {expected} of the journal is missing; line {line['Sequence']} is there")
            try:
                self._apply(line)
            except (KeyError, TypeError, ValueError, AttributeError) as exc:
                raise CheckpointCorrupt(
                    f"line {expected} of the journal lacks a field, or has one of the wrong kind: {exc!r}"
                ) from exc
        allocations = tuple(self._held.values())
        refuse_double_holders(allocations)
        end = replace(mark, sequence=mark.sequence + len(lines))
        return replace(self._checkpoint, allocations=allocations, registered=self._registered, journal=end)

    def _apply(self, line: Mapping[str, Any]) -> None:
        for released in line.get("Released", ()):
            uid, container, resource_name = texts(released)
            self._held.pop((uid, container, resource_name), None)
        for entry in line.get("PodDeviceEntries", ()):
            allocation = from_entry(entry)
            self._held[_key(allocation)] = allocation
        for name, ids in line.get("RegisteredDevices", {}).items():
            if ids is None:
                self._registered.pop(name, None)
            else:
                self._registered[text(name)] = texts(ids)
        if "Endpoints" in line:
            self._checkpoint = replace(self._checkpoint, sockets=read_sockets(line["Endpoints"]))
        if "PreStarts" in line:
            self._checkpoint = replace(self._checkpoint, pre_starts=read_pre_starts(line["PreStarts"]))


def _moved(
    before: tuple[Allocation, ...], after: tuple[Allocation, ...]
) -> tuple[tuple[Key, ...], tuple[Allocation, ...]]:
    """Keys that are gone, and allocations that came or changed. What both begin with is looked at least."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(before, after, strict=False)))
    earlier = {_key(allocation): allocation for allocation in before[same:]}
    entered = []
    for allocation in after[same:]:
        known = earlier.pop(_key(allocation), None)
        if known is not allocation and known != allocation:
            entered.append(allocation)
    return tuple(earlier), tuple(entered)


def _intact(journal: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """The lines up to the first that is none, and what is left from there."""
    lines = []
    position = 0
    while position < len(journal):
        end = journal.find(b"\n", position)
        line = _line(journal[position : end if end >= 0 else None])
        if line is None:
            break
        lines.append(line)
        position = end + 1 if end >= 0 else len(journal)
    return lines, journal[position:]


def _scattered(octets: bytes) -> Iterator[dict[str, Any]]:
    """Whatever is a line in there, wherever it begins: where a line's end is damaged, the next stands in the same one."""
    for piece in octets.split(b"\n"):
        line = _line(piece[max(piece.rfind(_BEGINNING) - _SUM_DIGITS, 0) :])
        if line is not None:
            yield line


def _was_whole(rest: bytes) -> bool:
    """Whether a line in what is no line had its end: JSON has no line break of its own. The end itself may be what is damaged."""
    return b"\n" in rest or _line(rest.rstrip(b"\0")[:-1]) is not None


def _line(octets: bytes) -> dict[str, Any] | None:
    """None where it is not what was written as a line. One that lacks but its end is one: the sum is over the rest."""
    content = octets[_SUM_DIGITS + 1 :].rstrip(b"\0")
    if not octets.startswith(_BEGINNING, _SUM_DIGITS) or octets[:_SUM_DIGITS] != b"%08x" % crc32(content):
        return None
    try:
        line = json.loads(content)
    except (ValueError, RecursionError):
        return None
    is_line = isinstance(line, dict) and isinstance(line.get("Generation"), str) and type(line.get("Sequence")) is int
    return line if is_line else None


def _is_newer(line: Mapping[str, Any], mark: JournalMark) -> bool:
    return bool(line["Generation"] == mark.generation and line["Sequence"] > mark.sequence)


def _is_held(line: Mapping[str, Any], mark: JournalMark) -> bool:
    return bool(line["Generation"] == mark.generation and line["Sequence"] <= mark.sequence)


def _key(allocation: Allocation) -> Key:
    return allocation.pod_uid, allocation.container, allocation.resource_name
