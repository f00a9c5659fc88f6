"""Encodes and decodes the fields that the checkpoint's file and the journal's lines share.

Only a content that would allocate a device to two pods makes a file corrupt. An invalid value in a field of ours is ignored, and
costs only the hint that it was. So is an entry of another form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from nodedevice_api.device_ids import MAX_SHOWN, has_original, original_id, shown_id
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import DELIVERIES, DELIVERY_KUBELET
from nodedevice_common.decoding import Undecodable, convert

from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey, by_numa, known_since
from nodedevice_agent.devicemanager.records.checkpoint import PluginSocket
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons, noted
from nodedevice_agent.devicemanager.registration import SUPPORTED_VERSIONS, RegistrationRejected, check_registration
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_agent.devicemanager.static_pods import StaticPod, is_config_hash
from nodedevice_agent.identity import Identity

# far more plugins than a node has
_MAX_SOCKETS = 256
# of a device; of an allocation
MAX_TOKENS, MAX_TOKEN_CHARACTERS = 512, 512
MAX_FILES, _MAX_PATH, _MAX_NUMBER = 1024, 4096, 32
# a word, and at most a resource name
_MAX_SCOPE = 400
# Go's encoder escapes these inside strings; outside of strings JSON has none of them
_ESCAPED = {character.encode(): b"\\u%04x" % ord(character) for character in "<>&\u2028\u2029"}

_Value = TypeVar("_Value")
# see Allocation
Files = tuple[tuple[str, str], ...]


class Entry(msgspec.Struct, frozen=True):
    """DeviceIDs: the original ones by NUMA node, or a plain list in version 1. AllocResp: protobuf, base64 in JSON."""

    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[int, tuple[str, ...]] | tuple[str, ...]
    AllocResp: bytes | None


class BesideFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields outside the kubelet's part, of the file and of a line of the journal; None: omitted.

    Since, Files, Shown, Deliveries: one value for each entry in PodDeviceEntries, in the same order; omitted if unknown for all.
    Shown: the entry's device IDs in the shown form, whose original is unknown: recovered from the API, and not listed since. Any
    other field: its whole value; see WHOLE.
    """

    Endpoints: Any = None
    PreStarts: Any = None
    AllocateCalls: Any = None
    Unlisted: Any = None
    StaticPods: Any = None
    Cordons: Any = None
    PossibleHolders: Any = None
    Gone: Any = None
    PartSizes: Any = None
    Since: Any = None
    Files: Any = None
    Shown: Any = None
    Deliveries: Any = None
    Identities: Any = None
    Scopes: Any = None


class _Cordons(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cordons of a resource, by device ID. InSpec, Remembered: reasons, each ID in one of them. By, At: who set it, and when."""

    UID: str = ""
    InSpec: dict[str, str] = {}
    Remembered: dict[str, str] = {}
    By: Any = {}
    At: Any = {}


class _Call(msgspec.Struct, frozen=True):
    """A pending PreStartContainer call, or an Allocate call without an allocation."""

    PodUID: str
    ContainerName: str
    ResourceName: str


def to_json(value: object) -> str:
    """Compact, and escaped as Go's encoder does it."""
    octets = msgspec.json.encode(value)
    for character, escaped in _ESCAPED.items():
        octets = octets.replace(character, escaped)
    return octets.decode()


def to_entry(allocation: Allocation) -> Entry:
    """Version 2 of the format."""
    # JSON keys are sorted as strings ("-1", "0", "10", "2"), unlike in the checksum
    ids = {node: original_ids(allocation.ids_by_numa[node]) for node in sorted(allocation.ids_by_numa, key=str)}
    return Entry(allocation.pod_uid, allocation.container, allocation.resource_name, ids, allocation.response)


def original_ids(shown: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(original_id, shown))


def shown_ids(originals: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(shown_id, originals))


def from_entries(entries: Sequence[Entry], beside: BesideFields, delivery: str = "") -> tuple[Allocation, ...]:
    """delivery: the default for an entry without one. An invalid value counts as unknown, as does a field of another length."""
    count = len(entries)
    each = (_each(values, count) for values in (beside.Since, beside.Files, beside.Shown, beside.Deliveries))
    return tuple(
        from_entry(entry, known_since(at), to_files(files), to_shown(shown), by if by in DELIVERIES else delivery)
        for entry, at, files, shown, by in zip(entries, *each, strict=True)
    )


def _each(values: Any, count: int) -> list[Any]:
    return values if isinstance(values, list) and len(values) == count else [None] * count


def beside_entries(allocations: Sequence[Allocation]) -> dict[str, tuple[Any, ...]]:
    """The fields with a value for each allocation, without fields that are unknown for all."""
    every = {
        "Since": tuple(allocation.since for allocation in allocations),
        "Files": tuple(allocation.files for allocation in allocations),
        "Shown": tuple(tuple(i for i in a.device_ids if not has_original(i)) for a in allocations),
        "Deliveries": tuple(allocation.delivery for allocation in allocations),
    }
    return {name: values for name, values in every.items() if any(values)}


def to_shown(ids: Any) -> frozenset[str]:
    """Read a set of IDs in the shown form. An invalid value is ignored: its shown form then counts as the original."""
    known = ids if isinstance(ids, list) else ()
    return frozenset(i for i in known if isinstance(i, str) and not has_original(i))


def to_files(entries: Any) -> Files:
    """Files of an allocation; empty if one entry is invalid, as an incomplete list would be wrong."""
    with suppress(Undecodable):
        files = convert(entries, Files)
        if len(files) <= MAX_FILES and all(_is_plain(p, _MAX_PATH) and _is_plain(n, _MAX_NUMBER) for p, n in files):
            return tuple(sorted(set(files)))
    return ()


def _is_plain(text: str, most: int) -> bool:
    return 0 < len(text) <= most and text.isprintable()


def from_entry(
    entry: Entry,
    since: int = 0,
    files: Files = (),
    shown: frozenset[str] = frozenset(),
    delivery: str = DELIVERY_KUBELET,
) -> Allocation:
    """Read version 2, or 1, whose devices later kubelets read as of node 0. shown: IDs in it that are in the shown form."""

    def as_shown(ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(i if i in shown else shown_id(i) for i in ids) if shown else shown_ids(ids)

    ids = entry.DeviceIDs
    if isinstance(ids, dict):
        nodes = {node: as_shown(ids[node]) for node in sorted(ids)}
    else:
        nodes = by_numa(as_shown(ids), dict.fromkeys(as_shown(ids), (0,)))
    held = entry.PodUID, entry.ContainerName, entry.ResourceName, nodes, entry.AllocResp
    return Allocation(*held, since=since, files=files, delivery=delivery)


def to_sockets(entries: Any) -> tuple[PluginSocket, ...]:
    """Sockets that could have registered; other entries are ignored."""
    found: list[PluginSocket] = []
    for socket in _valid(entries, PluginSocket):
        with suppress(RegistrationRejected):
            check_registration(SUPPORTED_VERSIONS[0], socket.resource_name, socket.name)
            found.append(socket)
    return tuple(found[:_MAX_SOCKETS])


def from_calls(keys: Iterable[AllocationKey]) -> tuple[_Call, ...]:
    return tuple(_Call(*key) for key in keys)


def to_calls(entries: Any) -> tuple[AllocationKey, ...]:
    """Each once."""
    return tuple(dict.fromkeys((e.PodUID, e.ContainerName, e.ResourceName) for e in _valid(entries, _Call)))


def from_cordons(cordons: Mapping[str, Cordons]) -> dict[str, _Cordons]:
    """Reasons alone are texts, as an older agent reads them: it ignores the rest, and no cordon."""
    written = {}
    for name, of_resource in cordons.items():
        in_spec = {i: cordon.reason for i, cordon in of_resource.in_spec.items()}
        remembered = {i: cordon.reason for i, cordon in of_resource.remembered.items()}
        every = {**of_resource.in_spec, **of_resource.remembered}
        by = {i: cordon.by for i, cordon in every.items() if cordon.by}
        at = {i: cordon.at for i, cordon in every.items() if cordon.at}
        written[name] = _Cordons(of_resource.uid, in_spec, remembered, by, at)
    return written


def to_cordons(entries: Any) -> dict[str, Cordons]:
    return {name: _to_cordons(found) for name, found in _by_name(entries, _Cordons).items()}


def _to_cordons(found: _Cordons) -> Cordons:
    by, at = (notes if isinstance(notes, dict) else {} for notes in (found.By, found.At))

    def read(reasons: dict[str, str]) -> dict[str, Cordon]:
        return {i: noted(reason, by.get(i), at.get(i)) for i, reason in reasons.items()}

    return Cordons(found.UID, read(found.InSpec), read(found.Remembered))


def to_identities(entries: Any) -> dict[str, dict[str, Identity]]:
    """Devices with an invalid ID or invalid tokens are skipped one by one: their identity is unknown."""
    found = {}
    for name, devices in entries.items() if isinstance(entries, dict) else ():
        of_resource = {i: identity for i, identity in _by_name(devices, Identity).items() if _is_known(i, identity)}
        if of_resource and not resource_name_problem(name):
            found[name] = of_resource
    return found


def _is_known(device_id: str, identity: Identity) -> bool:
    are_plain = all(_is_plain(token, MAX_TOKEN_CHARACTERS) for token in identity.tokens)
    return are_plain and 0 < len(identity.tokens) <= MAX_TOKENS and _is_plain(device_id, MAX_SHOWN)


def to_scopes(entries: Any) -> dict[str, str]:
    scopes = _by_name(entries, str).items()
    return {name: scope for name, scope in scopes if not resource_name_problem(name) and _is_plain(scope, _MAX_SCOPE)}


def _by_name(entries: Any, kind: type[_Value]) -> dict[str, _Value]:
    found = {}
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        with suppress(Undecodable):
            found[str(name)] = convert(entry, kind)
    return found


def _valid(entries: Any, kind: type[_Value]) -> list[_Value]:
    found = []
    for entry in entries if isinstance(entries, list) else ():
        with suppress(Undecodable):
            found.append(convert(entry, kind))
    return found


class Whole(msgspec.Struct, frozen=True):
    """A field outside the kubelet's part; a line of the journal has it whole or not at all. attribute: of a Checkpoint."""

    name: str
    attribute: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


WHOLE: Final = (
    Whole("Endpoints", "sockets", to_sockets),
    Whole("PreStarts", "pre_starts", to_calls, from_calls),
    Whole("AllocateCalls", "allocate_calls", to_calls, from_calls),
    Whole("Unlisted", "unlisted", lambda entries: tuple(_valid(entries, UnlistedContainer))),
    Whole("StaticPods", "static_pods", lambda pods: tuple(p for p in _valid(pods, StaticPod) if is_config_hash(p.uid))),
    Whole("Cordons", "cordons", to_cordons, from_cordons),
    Whole("PossibleHolders", "possible_holders", partial(_by_name, kind=tuple[str, ...])),
    Whole("Gone", "gone", lambda names: tuple(n for n in _valid(names, str) if not resource_name_problem(n))),
    Whole("PartSizes", "part_sizes", partial(_by_name, kind=dict[str, str])),
    Whole("Identities", "identities", to_identities),
    Whole("Scopes", "scopes", to_scopes),
)
