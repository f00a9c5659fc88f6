"""Decodes the observed status and spec of a NodeDevice; parts of another shape count as absent, and are overwritten.

The CRD's schema admits no other shapes. But an older or newer schema, or none, may have admitted them.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from nodedevice_api.resource_names import resource_name_problem

Json = dict[str, Any]


class _Endpoint(msgspec.Struct):
    state: str = ""
    since: str = ""


class _Device(msgspec.Struct):
    id: str
    health: str = ""
    since: str = ""
    cordonedSince: str = ""
    numaNodes: list[int] = []


class _Holder(msgspec.Struct):
    podUID: str
    container: str
    namespace: str = ""
    name: str = ""
    since: str = ""


class _Allocation(_Holder, kw_only=True):
    deviceIDs: list[str]
    deviceIDsOmitted: int = 0


class _Waiting(_Holder):
    reason: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    lastTransitionTime: str = ""


class _Cordon(msgspec.Struct):
    id: str


_LISTS: dict[str, type[msgspec.Struct]] = {
    "devices": _Device,
    "allocations": _Allocation,
    "waiting": _Waiting,
    "conditions": _Condition,
}


def well_formed(status: Json) -> Json:
    """The status without the malformed parts; equal to it when there are none."""
    kept = dict(status)
    for key, shape in _LISTS.items():
        if key in status:
            kept[key] = list(_fitting(status[key], shape))
    for key, kind in (("endpoint", _Endpoint), ("allocationsOmitted", int)):
        if key in status and not _fits(status[key], kind):
            del kept[key]
    return kept


def cordoned_ids(spec: Json) -> frozenset[str]:
    """The device IDs that the administrator cordoned; * for all of them."""
    return frozenset(entry["id"] for entry in _fitting(spec.get("cordonedDevices"), _Cordon))


def resource_name_of(spec: Json) -> str:
    """Empty where the object does not have a valid resource name."""
    name = spec.get("resourceName")
    return name if isinstance(name, str) and not resource_name_problem(name) else ""


def _fitting(entries: object, shape: type[msgspec.Struct]) -> Iterable[Json]:
    return (entry for entry in entries if _fits(entry, shape)) if isinstance(entries, list) else ()


def _fits(value: object, shape: type) -> bool:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return False
    return True
