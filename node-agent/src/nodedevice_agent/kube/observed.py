"""Decodes the observed status and spec of a NodeDevice.

Parts of another shape count as absent: the CRD's schema admits none, but an older or newer schema, or none, may have admitted them.
"""

from datetime import datetime
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from msgspec import Struct, structs, to_builtins
from nodedevice_api.device_ids import written_id
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD, ONLY_SHOWN
from nodedevice_api.nodedevice import AllocationStatus, CordonedDevice, NodeDeviceSpec, NodeDeviceStatus
from nodedevice_common.decoding import Undecodable, convert

from nodedevice_agent.devicemanager.records.allocations import known_since
from nodedevice_agent.devicemanager.records.cordons import Cordon, noted
from nodedevice_agent.kube.parts import part_ids

Json = dict[str, Any]
R = TypeVar("R", bound=Struct)

# A container holds at most as many as a NodeDevice can name.
_MAX_HELD: Final = 131_072
_NAMELESS: Final = NodeDeviceSpec(node_name="", resource_name="")


def observed_status(status: Json) -> NodeDeviceStatus:
    """The status without its malformed parts."""
    return _readable(status, NodeDeviceStatus())


def observed_spec(spec: Json) -> NodeDeviceSpec:
    """The same of a spec. Malformed names are empty."""
    return _readable(spec, _NAMELESS)


def _readable(value: Json, default: R) -> R:
    form = type(default)
    return _decoded(value, form) or _decoded(to_builtins(default) | _well_formed_fields(value, form), form) or default


def held_ids(allocation: AllocationStatus) -> tuple[list[str], int]:
    """The devices of an allocation, and how many are omitted; one with invalid parts omits all of these."""
    parts, ids = allocation.parts, [*map(written_id, allocation.device_ids)]
    try:
        return ids + part_ids(parts, _MAX_HELD), allocation.omitted
    except ValueError:
        return ids, allocation.omitted + max(sum(entry.parts for entry in parts), 1)


def since_of(time_stamp: str) -> int:
    """The time in Unix seconds; 0 if it is missing or invalid."""
    try:
        found = datetime.fromisoformat(time_stamp)
    except ValueError:
        return 0
    # a time without a zone would be parsed in this machine's zone
    return known_since(int(found.timestamp())) if found.tzinfo is not None else 0


def is_only_shown(status: NodeDeviceStatus) -> bool:
    """Whether the kubelet or a DRA driver allocates the resource of this status."""
    return status.agent is not None and status.agent.served_by in ONLY_SHOWN


def cordons_of(entries: list[CordonedDevice]) -> dict[str, Cordon]:
    """Cordons by device ID; * or its word stands for all devices."""
    every = (ALL_DEVICES, ALL_DEVICES_WORD)
    return {
        entry.id if entry.id in every else str(written_id(entry.id)): noted(entry.reason, entry.by, entry.at)
        for entry in entries
        if entry.id
    }


def resource_name_of(spec: NodeDeviceSpec) -> str:
    """The resource name; empty if the object has no valid one."""
    return "" if resource_name_problem(spec.resource_name) else spec.resource_name


def _well_formed_fields(value: Json, form: type[Struct]) -> Json:
    kinds = {field.encode_name: field.type for field in structs.fields(form)}
    kept = {name: _well_formed(value[name], kind) for name, kind in kinds.items() if name in value}
    return {name: part for name, part in kept.items() if part is not None}


def _well_formed(value: object, form: Any) -> object:
    """The value without its invalid parts; None if all of it is invalid."""
    if _decoded(value, form) is not None:
        return value
    kind = get_args(form)[0] if get_origin(form) in (list, UnionType) else form
    if get_origin(form) is list:
        found = (_well_formed(entry, kind) for entry in value) if isinstance(value, list) else ()
        return [entry for entry in found if entry is not None]
    if not isinstance(value, dict) or not isinstance(kind, type) or not issubclass(kind, Struct):
        return None
    kept = _well_formed_fields(value, kind)
    # a required field may be invalid
    return kept if _decoded(kept, kind) is not None else None


def _decoded(value: object, form: type[R]) -> R | None:
    try:
        return convert(value, form)
    except Undecodable:
        return None
