"""The checkpoint file: the kubelet's format, including its checksum, and additional fields.

Reads version 2 (Kubernetes 1.20 and newer) and version 1 (device IDs as a plain list); writes version 2. The additional fields are
outside the checksummed part. A kubelet ignores unknown fields, and so does an older agent.

The checksum is 32-bit FNV-1a over the text that Go's spew prints of the data. Python takes some 50 ns a byte, and a full node has
hundreds of kilobytes of this text. So hashing can continue after any unchanged entry.

Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint, pkg/kubelet/checkpointmanager and its checksum (FNV-1a over spew's %#v).
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable

from nodedevice_agent.checkpoint import fields
from nodedevice_agent.checkpoint.fields import Entry
from nodedevice_agent.devicemanager.records.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt, JournalMark
from nodedevice_agent.devicemanager.resources.devices import MAX_NUMA_NODE

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
# Half of a file, in which pods' allocations have room, too. A restart uses only the names of resources.
_MAX_REGISTERED_BYTES = 32 * 1024 * 1024
# of a name in an error
_SHOWN = 40
# each octet as Go prints it; and octets of a response that are printed at once, as no other thread runs meanwhile
_DECIMAL = tuple(map(str, range(256)))
_PIECE = 16 * 1024


class Data(msgspec.Struct, frozen=True):
    """The checksummed part, with original device IDs. RegisteredDevices: the healthy ones by resource name."""

    PodDeviceEntries: tuple[Entry, ...] | None
    RegisteredDevices: dict[str, tuple[str, ...]] | None


class _Mark(msgspec.Struct, frozen=True):
    """Checksum: over the mark and the file's checksum. With a wrong mark, journal lines would be lost or applied twice."""

    Generation: str
    Sequence: int
    Checksum: int


class _First(fields.BesideFields, frozen=True):
    Checksum: int
    BootID: Any = ""


class _Beside(_First, frozen=True, kw_only=True):
    """The fields outside the checksummed part. An invalid value of an Any is ignored: it is only a hint for the next start."""

    Journal: _Mark | None = None


class _File(_Beside, frozen=True, kw_only=True):
    Data: Data


def encode(checkpoint: Checkpoint) -> str:
    """The file's text: one compact JSON object, as the kubelet writes it."""
    return Encoder().encode(checkpoint)


class _Written(Struct, frozen=True):
    """An encoded entry. checksum: of the text up to its end."""

    allocation: Allocation
    json: str
    checksum: int


class Encoder:
    """encode() for repeated use: the text before the first changed entry is not made or hashed again. New pods come last. If
    device lists would take more than half of a file, only the names of their resources are written.
    """

    def __init__(self) -> None:
        self._written: list[_Written] = []
        # device IDs in the shown form, as in the closing text
        self._registered: Mapping[str, tuple[str, ...]] = {}
        self._closing = _Closing({}, is_nil=True)

    def encode(self, checkpoint: Checkpoint) -> str:
        value = self._entries(checkpoint.allocations)
        is_nil = not self._written
        if (is_nil, checkpoint.registered) != (self._closing.is_nil, self._registered):
            self._registered = checkpoint.registered
            originals = {name: fields.original_ids(ids) for name, ids in sorted(self._registered.items())}
            self._closing = _Closing(originals, is_nil=is_nil)
            # JSON has at most six octets for each one
            is_long = 6 * self._closing.octets > _MAX_REGISTERED_BYTES
            if is_long and len(fields.to_json(originals).encode()) > _MAX_REGISTERED_BYTES:
                self._closing = _Closing(dict.fromkeys(originals, ()), is_nil=is_nil)
        value = self._closing.after(value)
        beside = _Beside(
            value,
            checkpoint.boot_id,
            **{field.name: field.write(getattr(checkpoint, field.attribute)) or None for field in fields.WHOLE},
            **fields.beside_entries(checkpoint.allocations),
            Journal=_mark(checkpoint.journal, value) if checkpoint.journal is not None else None,
        )
        entries = "null" if is_nil else f"[{','.join(written.json for written in self._written)}]"
        devices = fields.to_json(self._closing.registered)
        return f'{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{devices}}},{fields.to_json(beside)[1:]}'

    def _entries(self, allocations: tuple[Allocation, ...]) -> int:
        """Bring the written entries up to date. Returns the hash after the last one."""
        same = takewhile(lambda pair: pair[0].allocation is pair[1], zip(self._written, allocations, strict=False))
        del self._written[sum(1 for _ in same) :]
        value = self._written[-1].checksum if self._written else _opening(is_nil=not allocations)
        for allocation in allocations[len(self._written) :]:
            entry = fields.to_entry(allocation)
            value = _after_entry(value, entry, is_first=not self._written)
            self._written.append(_Written(allocation, fields.to_json(entry), value))
        return value


def decode(content: bytes | str, delivery: str = "") -> Checkpoint:
    """delivery: of allocations that do not record theirs. Raises CheckpointCorrupt."""
    try:
        text = content if isinstance(content, str) else content.decode()
        file = decoding.decode(text, _File)
    except UnicodeDecodeError as exc:
        raise CheckpointCorrupt(f"not UTF-8 text (byte {exc.start})") from exc
    except Undecodable as exc:
        what = "a field is missing or of the wrong kind" if exc.is_wrong_form else "not JSON"
        raise CheckpointCorrupt(f"{what}: {exc}") from exc
    computed = checksum(file.Data)
    if file.Checksum != computed:
        raise CheckpointCorrupt(f"checksum is {file.Checksum}, but the content's is {computed}")
    allocations = fields.from_entries(file.Data.PodDeviceEntries or (), file, delivery)
    check_consistent(allocations)
    journal = JournalMark(file.Journal.Generation, file.Journal.Sequence) if file.Journal is not None else None
    if journal is not None and file.Journal != _mark(journal, computed):
        raise CheckpointCorrupt("the position in the journal is damaged")
    return Checkpoint(
        allocations,
        {name: fields.shown_ids(ids) for name, ids in (file.Data.RegisteredDevices or {}).items()},
        boot_id=str(file.BootID or ""),
        **{field.attribute: field.read(getattr(file, field.name)) for field in fields.WHOLE},
        journal=journal,
    )


def _mark(mark: JournalMark, value: int) -> _Mark:
    """value: the file's checksum."""
    return _Mark(mark.generation, mark.sequence, crc32(f"{mark.generation} {mark.sequence} {value}".encode()))


# -- validation: a checksum detects damage, not a wrong writer -----------------------------------------------------------


def check_consistent(allocations: Iterable[Allocation]) -> None:
    """Check any checkpoint, also a kubelet's: no device has two pods, and no container two entries for one resource.

    The second entry would replace the first, whose devices would never be released. Raises CheckpointCorrupt.
    """
    holders: dict[tuple[str, str], str] = {}
    keys = set()
    for a in allocations:
        for device_id in a.device_ids:
            holder = holders.setdefault((a.resource_name, device_id), a.pod_uid)
            if holder != a.pod_uid:
                raise CheckpointCorrupt(f"{a.resource_name} {device_id} is held by pods {holder} and {a.pod_uid}")
        if a.key in keys:
            raise CheckpointCorrupt("a container has two entries for one resource")
        keys.add(a.key)


def check_possible(checkpoint: Checkpoint) -> None:
    """Check a checkpoint of this agent: a device plugin could register every name. Raises CheckpointCorrupt with the first error.
    A kubelet's checkpoint is not checked: it holds names that plugins reported.
    """
    for name in sorted({a.resource_name for a in checkpoint.allocations} | set(checkpoint.registered)):
        if problem := resource_name_problem(name):
            raise CheckpointCorrupt(f"resource name {name[:_SHOWN]!a}: {problem}")
    for allocation in checkpoint.allocations:
        for node in allocation.ids_by_numa:
            if not NO_NUMA_NODE <= node <= MAX_NUMA_NODE:
                raise CheckpointCorrupt(f"{allocation.resource_name}: invalid NUMA node {str(node)[:_SHOWN]}")


# -- the kubelet's checksum ----------------------------------------------------------------------------------------------


def checksum(data: Data) -> int:
    is_nil = data.PodDeviceEntries is None
    value = _opening(is_nil=is_nil)
    for position, entry in enumerate(data.PodDeviceEntries or ()):
        value = _after_entry(value, entry, is_first=position == 0)
    return _Closing(data.RegisteredDevices, is_nil=is_nil).after(value)


def _opening(*, is_nil: bool) -> int:
    """The hash of the text before the first entry. is_nil: the list of entries is null, not empty; Go prints them differently."""
    text = "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
    return _fnv1a(text + ("<nil>" if is_nil else "["), _OFFSET)


def _after_entry(value: int, entry: Entry, *, is_first: bool) -> int:
    """The hash after an entry. value: the hash before it."""
    ids = entry.DeviceIDs
    devices = f"(checkpoint.DevicesPerNUMA){_map(ids)}" if isinstance(ids, dict) else f"([]string){_list(ids)}"
    text = (
        f"{{PodUID:(string){entry.PodUID} ContainerName:(string){entry.ContainerName}"
        f" ResourceName:(string){entry.ResourceName} DeviceIDs:{devices} AllocResp:([]uint8)"
    )
    value = _fnv1a(text if is_first else f" {text}", value)
    return _fnv1a("}", _after_response(value, entry.AllocResp))


def _after_response(value: int, response: bytes | None) -> int:
    if response is None:
        return _fnv1a("<nil>", value)
    value = _fnv1a("[", value)
    for begin in range(0, len(response), _PIECE):
        words = " ".join(map(_DECIMAL.__getitem__, response[begin : begin + _PIECE]))
        value = _fnv1a(f" {words}" if begin else words, value)
    return _fnv1a("]", value)


class _Closing:
    """The text after the last entry: all device IDs of the node, which rarely change and are hashed last.

    Each step of the hash is (value ^ byte) * prime, and a byte changes only the low eight bits. Two values with the same low byte
    change by the same amounts, and their difference is only multiplied: one hash for each low byte serves every value.
    """

    def __init__(self, registered: Mapping[str, tuple[str, ...]] | None, *, is_nil: bool) -> None:
        self.registered, self.is_nil = registered, is_nil
        self.octets = len(self._text().encode())
        self._factor = pow(_PRIME, self.octets, _MASK + 1)
        self._hashes: dict[int, int] = {}

    def _text(self) -> str:
        """Megabytes if plugins list many devices, so it is made on use."""
        devices = "<nil>" if self.registered is None else _map(self.registered)
        return ("" if self.is_nil else "]") + f" RegisteredDevices:(map[string][]string){devices}}}"

    def after(self, value: int) -> int:
        """The checksum. value: the hash after the last entry."""
        low = value & 0xFF
        if low not in self._hashes:
            self._hashes[low] = _fnv1a(self._text(), low)
        return (self._hashes[low] + (value - low) * self._factor) & _MASK


def _map(ids: Mapping[Any, tuple[str, ...]]) -> str:
    # numbers by value, names by code point, which is also their order in UTF-8
    return f"map[{' '.join(f'{key}:{_list(ids[key])}' for key in sorted(ids))}]"


def _list(words: Iterable[str]) -> str:
    return f"[{' '.join(words)}]"


def _fnv1a(text: str, value: int) -> int:
    prime, mask = _PRIME, _MASK
    for octet in text.encode():
        value = ((value ^ octet) * prime) & mask
    return value
