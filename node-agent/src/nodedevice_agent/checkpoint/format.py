"""The checkpoint file: the kubelet's format, checksum included, and fields of ours beside it.

Reads version 2 (Kubernetes 1.20 and newer) and version 1 (device IDs as a plain list); writes version 2. BootID, Endpoints,
PreStarts and Journal are outside the checksummed part; a kubelet ignores fields it does not know.
Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint and pkg/kubelet/checkpointmanager.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from nodedevice_agent.checkpoint.checksum import Closing, Data, Entry, after_entry, checksum, opening
from nodedevice_agent.checkpoint.validation import check_consistent
from nodedevice_agent.devicemanager.allocation.allocations import (
    Allocation,
    Checkpoint,
    CheckpointCorrupt,
    JournalMark,
    PluginSocket,
    by_numa,
)
from nodedevice_agent.devicemanager.registration import SUPPORTED_VERSIONS, RegistrationRejected, check_registration

# far more plugins than a node has
_MAX_SOCKETS = 256
# Go's encoder escapes these inside strings; outside of strings JSON has none of them
_ESCAPED = {character.encode(): b"\\u%04x" % ord(character) for character in "<>&\u2028\u2029"}

_Field = TypeVar("_Field", bound=msgspec.Struct)


class Endpoint(msgspec.Struct, frozen=True):
    """A PluginSocket in the file."""

    ResourceName: str
    Endpoint: str


class PreStart(msgspec.Struct, frozen=True):
    """A pending PreStartContainer call in the file."""

    PodUID: str
    ContainerName: str
    ResourceName: str


class _Mark(msgspec.Struct, frozen=True):
    """Checksum: over the mark and the file's checksum. With a wrong mark, journal lines would be lost or applied twice."""

    Generation: str
    Sequence: int
    Checksum: int


class _Beside(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is outside the checksummed part. What is invalid in an Any is ignored: it is only a hint for the next start."""

    Checksum: int
    BootID: Any = ""
    Endpoints: Any = ()
    PreStarts: Any = ()
    Journal: _Mark | None = None


class _File(_Beside, kw_only=True):
    Data: Data


def encode(checkpoint: Checkpoint) -> str:
    """The file's text: one compact JSON object, as the kubelet writes it."""
    return Encoder().encode(checkpoint)


@dataclass(frozen=True, slots=True)
class _Written:
    """An entry as it was written. checksum: of everything up to its end."""

    allocation: Allocation
    json: str
    checksum: int


class Encoder:
    """encode() for repeated use: whatever comes before the first changed entry is neither encoded nor hashed again.

    Allocations keep their order, so that a new pod is at the end, and one that soon ends is near it.
    """

    def __init__(self) -> None:
        self._written: list[_Written] = []
        self._registered: Mapping[str, tuple[str, ...]] = {}
        self._closing: Closing | None = None
        self._is_nil = True

    def encode(self, checkpoint: Checkpoint) -> str:
        value = self._entries(checkpoint.allocations)
        is_nil, registered = not self._written, checkpoint.registered
        if self._closing is None or is_nil is not self._is_nil or registered != self._registered:
            self._registered, self._is_nil, self._closing = registered, is_nil, Closing(registered, is_nil=is_nil)
        beside = to_json(_beside(checkpoint, self._closing.after(value)))
        entries = "null" if is_nil else f"[{','.join(written.json for written in self._written)}]"
        devices = to_json({name: registered[name] for name in sorted(registered)})
        return f'{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{devices}}},{beside[1:]}'

    def _entries(self, allocations: tuple[Allocation, ...]) -> int:
        """Bring the written entries up to date. Returns the hash after the last one."""
        same = takewhile(lambda pair: pair[0].allocation is pair[1], zip(self._written, allocations, strict=False))
        del self._written[sum(1 for _ in same) :]
        value = self._written[-1].checksum if self._written else opening(is_nil=not allocations)
        for allocation in allocations[len(self._written) :]:
            entry = to_entry(allocation)
            value = after_entry(value, entry, is_first=not self._written)
            self._written.append(_Written(allocation, to_json(entry), value))
        return value


def decode(content: bytes | str) -> Checkpoint:
    """Raises CheckpointCorrupt."""
    try:
        text = content if isinstance(content, str) else content.decode()
        file = msgspec.json.decode(text, type=_File)
    except UnicodeDecodeError as exc:
        raise CheckpointCorrupt(f"not UTF-8 text (byte {exc.start})") from exc
    except msgspec.ValidationError as exc:
        raise CheckpointCorrupt(f"a field is missing or of the wrong kind: {exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise CheckpointCorrupt(f"not JSON: {exc}") from exc
    computed = checksum(file.Data)
    if file.Checksum != computed:
        raise CheckpointCorrupt(f"checksum is {file.Checksum}, but the content's is {computed}")
    allocations = tuple(map(from_entry, file.Data.PodDeviceEntries or ()))
    check_consistent(allocations)
    return Checkpoint(
        allocations,
        file.Data.RegisteredDevices or {},
        boot_id=str(file.BootID or ""),
        sockets=to_sockets(file.Endpoints),
        pre_starts=to_pre_starts(file.PreStarts),
        journal=_checked(file.Journal, computed),
    )


def to_json(value: object) -> str:
    """Compact, and escaped as Go's encoder does it."""
    octets = msgspec.json.encode(value)
    for character, escaped in _ESCAPED.items():
        octets = octets.replace(character, escaped)
    return octets.decode()


def to_entry(allocation: Allocation) -> Entry:
    """Version 2 of the format."""
    # JSON keys are sorted as strings ("-1", "0", "10", "2"), unlike in the checksum
    ids = {node: allocation.ids_by_numa[node] for node in sorted(allocation.ids_by_numa, key=str)}
    return Entry(allocation.pod_uid, allocation.container, allocation.resource_name, ids, allocation.response)


def from_entry(entry: Entry) -> Allocation:
    """Version 2 or 1. Later kubelets read the device IDs of version 1, which knows no NUMA, as those of node 0."""
    ids = entry.DeviceIDs
    nodes = (
        {node: ids[node] for node in sorted(ids)} if isinstance(ids, dict) else by_numa(ids, dict.fromkeys(ids, (0,)))
    )
    return Allocation(entry.PodUID, entry.ContainerName, entry.ResourceName, nodes, entry.AllocResp)


def from_sockets(sockets: Iterable[PluginSocket]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(socket.resource_name, socket.name) for socket in sockets)


def to_sockets(entries: Any) -> tuple[PluginSocket, ...]:
    """Those that could have registered; others are ignored."""
    found: list[PluginSocket] = []
    for entry in _valid(entries, Endpoint):
        with suppress(RegistrationRejected):
            check_registration(SUPPORTED_VERSIONS[0], entry.ResourceName, entry.Endpoint)
            found.append(PluginSocket(entry.ResourceName, entry.Endpoint))
    return tuple(found[:_MAX_SOCKETS])


def from_pre_starts(keys: Iterable[tuple[str, str, str]]) -> tuple[PreStart, ...]:
    return tuple(PreStart(*key) for key in keys)


def to_pre_starts(entries: Any) -> tuple[tuple[str, str, str], ...]:
    """Each once; entries of another form are ignored."""
    return tuple({(e.PodUID, e.ContainerName, e.ResourceName): None for e in _valid(entries, PreStart)})


def _valid(entries: Any, kind: type[_Field]) -> list[_Field]:
    found = []
    for entry in entries if isinstance(entries, list) else ():
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(entry, kind))
    return found


def _beside(checkpoint: Checkpoint, value: int) -> _Beside:
    """value: the checksum."""
    mark = checkpoint.journal
    return _Beside(
        Checksum=value,
        BootID=checkpoint.boot_id,
        Endpoints=from_sockets(checkpoint.sockets),
        PreStarts=from_pre_starts(checkpoint.pre_starts),
        Journal=None if mark is None else _Mark(mark.generation, mark.sequence, _mark_checksum(mark, value)),
    )


def _mark_checksum(mark: JournalMark, value: int) -> int:
    return crc32(f"{mark.generation} {mark.sequence} {value}".encode())


def _checked(written: _Mark | None, value: int) -> JournalMark | None:
    """Raises CheckpointCorrupt."""
    if written is None:
        return None
    mark = JournalMark(written.Generation, written.Sequence)
    if written.Checksum != _mark_checksum(mark, value):
        raise CheckpointCorrupt("the position in the journal is damaged")
    return mark
