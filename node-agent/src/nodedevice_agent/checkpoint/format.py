"""The checkpoint: what a restart must not lose, in the kubelet's own format, checksum included.

Reads version 2 (Kubernetes 1.20 and newer) and version 1 (device IDs as a plain list); writes version 2. BootID, Endpoints,
PreStarts and Journal stand outside the checksummed part; the kubelet passes over what it does not know.
Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint and pkg/kubelet/checkpointmanager.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from zlib import crc32

from nodedevice_agent.checkpoint.checksum import Closing, after_entry, checksum, opening
from nodedevice_agent.checkpoint.entry import as_json, from_entry, text, to_entry
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.registration import SUPPORTED_VERSIONS, RegistrationRejected, check_registration
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt, JournalMark, PluginSocket

_MAX_SHOWN = 40
# far more plugins than a node has
_MAX_SOCKETS = 256
_PRE_START_KEYS = ("PodUID", "ContainerName", "ResourceName")


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
    """encode() for one who does it again and again: what stands before the first entry that changed costs nothing.

    Allocations keep their order, so a pod that comes is at the end, and one that soon goes is not far from it.
    """

    def __init__(self) -> None:
        self._written: list[_Written] = []
        self._registered: Mapping[str, tuple[str, ...]] = {}
        self._registered_json = ""
        self._closing: Closing | None = None
        self._is_nil = True

    def encode(self, checkpoint: Checkpoint) -> str:
        value = self._entries(checkpoint.allocations)
        value = self._closed(value, checkpoint.registered)
        entries = "null" if self._is_nil else f"[{','.join(written.json for written in self._written)}]"
        beside = "".join(f",{as_json(key)}:{as_json(found)}" for key, found in _beside(checkpoint, value).items())
        return f'{{"Data":{{"PodDeviceEntries":{entries},"RegisteredDevices":{self._registered_json}}},"Checksum":{value}{beside}}}'

    def _entries(self, allocations: tuple[Allocation, ...]) -> int:
        """Bring what is written up to date. Returns the hash after the last entry."""
        same = takewhile(lambda pair: pair[0].allocation is pair[1], zip(self._written, allocations, strict=False))
        del self._written[sum(1 for _ in same) :]
        value = self._written[-1].checksum if self._written else opening(is_nil=not allocations)
        for allocation in allocations[len(self._written) :]:
            entry = to_entry(allocation)
            value = after_entry(value, entry, is_first=not self._written)
            self._written.append(_Written(allocation, as_json(entry), value))
        return value

    def _closed(self, value: int, registered: Mapping[str, tuple[str, ...]]) -> int:
        is_nil = not self._written
        if self._closing is None or is_nil is not self._is_nil or registered != self._registered:
            self._registered, self._is_nil = registered, is_nil
            self._registered_json = as_json({name: list(registered[name]) for name in sorted(registered)})
            self._closing = Closing(registered, is_nil=is_nil)
        return self._closing.after(value)


def _beside(checkpoint: Checkpoint, value: int) -> dict[str, Any]:
    """What the checksum does not cover. value: the checksum."""
    found: dict[str, Any] = {}
    if checkpoint.boot_id:
        found["BootID"] = checkpoint.boot_id
    if checkpoint.sockets:
        found["Endpoints"] = sockets_json(checkpoint.sockets)
    if checkpoint.pre_starts:
        found["PreStarts"] = pre_starts_json(checkpoint.pre_starts)
    if checkpoint.journal is not None:
        mark = checkpoint.journal
        found["Journal"] = {
            "Generation": mark.generation,
            "Sequence": mark.sequence,
            "Checksum": _mark_checksum(mark.generation, mark.sequence, value),
        }
    return found


def sockets_json(sockets: Iterable[PluginSocket]) -> list[dict[str, str]]:
    return [{"ResourceName": s.resource_name, "Endpoint": s.name} for s in sockets]


def pre_starts_json(keys: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [dict(zip(_PRE_START_KEYS, key, strict=True)) for key in keys]


def _mark_checksum(generation: object, sequence: object, value: int) -> int:
    """Of a JournalMark in a checkpoint with that checksum: believed wrongly, lines would be lost or taken in twice."""
    return crc32(f"{generation} {sequence} {value}".encode("utf-8", "surrogatepass"))


def decode(content: str) -> Checkpoint:
    """Raises CheckpointCorrupt."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise CheckpointCorrupt(f"not JSON: {exc}") from exc
    if not isinstance(whole, dict) or not isinstance(whole.get("Data"), dict):
        raise CheckpointCorrupt("not a checkpoint: Data is missing")
    data, stored = whole["Data"], whole.get("Checksum")
    try:
        computed = checksum(data)
        allocations = tuple(from_entry(entry) for entry in data.get("PodDeviceEntries") or ())
        registered = {str(name): tuple(map(str, ids)) for name, ids in (data.get("RegisteredDevices") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise CheckpointCorrupt(f"a field is missing or of the wrong kind: {exc!r}") from exc
    if type(stored) is not int or stored != computed:
        raise CheckpointCorrupt(f"checksum is {str(stored)[:_MAX_SHOWN]}, but the content's is {computed}")
    _refuse_double_entries(allocations)
    refuse_double_holders(allocations)
    return Checkpoint(
        allocations,
        registered,
        boot_id=str(whole.get("BootID") or ""),
        sockets=read_sockets(whole.get("Endpoints")),
        pre_starts=read_pre_starts(whole.get("PreStarts")),
        journal=_mark(whole.get("Journal"), computed),
    )


def read_sockets(entries: object) -> tuple[PluginSocket, ...]:
    """Those that could have registered; anything else is passed over."""
    found: list[PluginSocket] = []
    for entry in entries if isinstance(entries, list) else ():
        name, endpoint = (entry.get("ResourceName"), entry.get("Endpoint")) if isinstance(entry, dict) else (None, None)
        if isinstance(name, str) and isinstance(endpoint, str) and len(found) < _MAX_SOCKETS:
            with suppress(RegistrationRejected):
                check_registration(SUPPORTED_VERSIONS[0], name, endpoint)
                found.append(PluginSocket(name, endpoint))
    return tuple(found)


def read_pre_starts(entries: object) -> tuple[tuple[str, str, str], ...]:
    """Anything that is no such call is passed over."""
    found: list[tuple[str, str, str]] = []
    for entry in entries if isinstance(entries, list) else ():
        with suppress(KeyError, TypeError):
            uid, container, resource_name = (text(entry[key]) for key in _PRE_START_KEYS)
            found.append((uid, container, resource_name))
    return tuple(dict.fromkeys(found))


def _mark(written: object, value: int) -> JournalMark | None:
    """Raises CheckpointCorrupt."""
    if written is None:
        return None
    fields = written if isinstance(written, dict) else {}
    generation, sequence = fields.get("Generation"), fields.get("Sequence")
    is_right = fields.get("Checksum") == _mark_checksum(generation, sequence, value)
    if not is_right or not isinstance(generation, str) or not isinstance(sequence, int):
        raise CheckpointCorrupt("what it says of its journal is damaged")
    return JournalMark(generation, sequence)


def _refuse_double_entries(allocations: tuple[Allocation, ...]) -> None:
    """The second would take the first one's place, and the first one's devices would be held by nobody for ever.

    Raises CheckpointCorrupt.
    """
    keys = {(allocation.pod_uid, allocation.container, allocation.resource_name) for allocation in allocations}
    if len(keys) < len(allocations):
        raise CheckpointCorrupt("a container has two entries for one resource")


def refuse_double_holders(allocations: Iterable[Allocation]) -> None:
    """Raises CheckpointCorrupt."""
    holders: dict[tuple[str, str], str] = {}
    for allocation in allocations:
        for device_id in allocation.device_ids:
            holder = holders.setdefault((allocation.resource_name, device_id), allocation.pod_uid)
            if holder != allocation.pod_uid:
                raise CheckpointCorrupt(
                    f"{allocation.resource_name} {device_id} is held by pods {holder} and {allocation.pod_uid}"
                )
