"""Decodes the observed status and spec of a NodeDevice.

Parts of another shape count as absent: the CRD's schema admits none, but an older or newer schema, or none, may have admitted them.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import SERVED_BY_KUBELET
from nodedevice_common.decoding import Undecodable, convert

from nodedevice_agent.devicemanager.allocation.allocations import known_since
from nodedevice_agent.devicemanager.resources.cordons import Cordon, noted
from nodedevice_agent.kube.parts import part_ids

Json = dict[str, Any]

# A container holds at most as many as a NodeDevice can name.
_MAX_HELD = 131_072


class _ObservedEndpoint(msgspec.Struct):
    state: str = ""
    since: str = ""


class _ObservedRules(msgspec.Struct):
    advertise: str = ""
    largestAvailable: int = 0


class _ObservedDevice(msgspec.Struct):
    id: str
    health: str = ""
    since: str = ""
    cordonedSince: str = ""
    numaNodes: list[int] = []


class _ObservedContainer(msgspec.Struct):
    podUID: str
    container: str
    namespace: str = ""
    name: str = ""
    since: str = ""


class _ObservedParts(msgspec.Struct):
    parent: str
    parts: int
    numbers: str
    sep: Literal["::", "-"] = "-"


class _ObservedAllocation(_ObservedContainer, kw_only=True):
    deviceIDs: list[str] = []
    deviceIDsOmitted: int = 0
    parts: list[_ObservedParts] = []


class _ObservedWaiting(_ObservedContainer):
    reason: str = ""


class _ObservedCondition(msgspec.Struct):
    type: str
    status: str = ""
    lastTransitionTime: str = ""


class _ObservedCordon(msgspec.Struct):
    id: str
    reason: str = ""
    # a note of another form costs the note, not the cordon
    by: Any = ""
    at: Any = ""


_LISTS: dict[str, type[msgspec.Struct]] = {
    "devices": _ObservedDevice,
    "allocations": _ObservedAllocation,
    "waiting": _ObservedWaiting,
    "conditions": _ObservedCondition,
}


def well_formed(status: Json) -> Json:
    """The status without the malformed parts; equal to it when there are none."""
    kept = dict(status)
    for key, shape in _LISTS.items():
        if key in status:
            kept[key] = list(_fitting(status[key], shape))
    for key, kind in (("endpoint", _ObservedEndpoint), ("allocationsOmitted", int), ("parts", _ObservedRules)):
        if key in status and not _fits(status[key], kind):
            del kept[key]
    return kept


def held_ids(allocation: Json) -> tuple[list[str], int]:
    """Of a well-formed entry of status.allocations: the devices, and how many are omitted; an invalid entry omits all its parts."""
    ids, omitted = list(allocation.get("deviceIDs", ())), allocation.get("deviceIDsOmitted", 0)
    parts = allocation.get("parts", ())
    try:
        return ids + part_ids(parts, _MAX_HELD), omitted
    except ValueError:
        return ids, omitted + max(sum(entry["parts"] for entry in parts), 1)


def since_of(entry: Json) -> int:
    """Of a well-formed entry: its time stamp in Unix seconds; 0 where there is none, or no valid one."""
    try:
        found = datetime.fromisoformat(entry.get("since", ""))
    except ValueError:
        return 0
    # without a time zone it would be taken for this machine's
    return known_since(int(found.timestamp())) if found.tzinfo is not None else 0


def is_of_kubelet(status: Json) -> bool:
    """Whether the status is of a resource that the kubelet serves, and that is only shown here."""
    agent = status.get("agent")
    return isinstance(agent, dict) and agent.get("servedBy") == SERVED_BY_KUBELET


def cordons_of(entries: object) -> dict[str, Cordon]:
    """Of a list of cordons, by device ID; * for all of them."""
    return {
        entry["id"]: noted(entry.get("reason", ""), entry.get("by"), entry.get("at"))
        for entry in _fitting(entries, _ObservedCordon)
    }


def resource_name_of(spec: Json) -> str:
    """Empty where the object does not have a valid resource name."""
    name = spec.get("resourceName")
    return name if isinstance(name, str) and not resource_name_problem(name) else ""


def _fitting(entries: object, shape: type[msgspec.Struct]) -> Iterable[Json]:
    return (entry for entry in entries if _fits(entry, shape)) if isinstance(entries, list) else ()


def _fits(value: object, shape: type) -> bool:
    try:
        convert(value, shape)
    except Undecodable:
        return False
    return True
