"""Generates the records of NodeDevices and PodDevices for `kubectl nodedevice` from the types of `nodedevice_api`.

That program has the standard library alone, and so none of msgspec. A kind's spec and status become one record with its metadata.
Every field has a default, as the CRD may be of another release. Run by `make generate`.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from kubectl_nodedevice.records import camel
from nodedevice_api import nodedevice, poddevice

OUT: Final = Path(__file__).parents[1] / "cli/src/kubectl_nodedevice/device_records.py"
_HEAD: Final = '''"""NodeDevice and PodDevice as records, by `make generate`; `nodedevice_api` documents their fields. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubectl_nodedevice.records import Meta, place
'''
# records and fields with a shorter name in user commands
_RECORDS: Final = {"CordonedDevice": "Cordon", "DeviceTaint": "Taint"}
_FIELDS: Final = {
    "node_name": "node",
    "resource_name": "resource",
    "cordoned_devices": "cordons",
    "last_transition_time": "since",
    "AllocationStatus.name": "pod",
    "Waiting.name": "pod",
}
# fields that no command shows
SKIPPED: Final = {
    nodedevice.EndpointStatus: {"pre_start_required", "get_preferred_allocation_available"},
    nodedevice.AgentStatus: {"version"},
    nodedevice.PartRulesStatus: {"advertise", "sm_percent", "largest_available"},
    nodedevice.DeviceStatus: {"cordoned_by"},
    nodedevice.HeldParts: {"numbers", "sep"},
    nodedevice.ClaimedDevice: {"consumed_capacity", "extended_resource"},
    nodedevice.ClaimStatus: {"uid"},
    nodedevice.AllocationStatus: {"omitted"},
    nodedevice.ConditionStatus: {"observed_generation"},
    nodedevice.NodeDeviceStatus: {"allocations_omitted", "waiting_pods"},
    poddevice.HeldDevice: {"extended_resource", "taints"},
}
_BLANK: Final = {str: '""', int: "0", bool: "False"}


def main() -> None:
    OUT.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the source of the module."""
    node_device: list[type[msgspec.Struct]] = [nodedevice.NodeDeviceSpec, nodedevice.NodeDeviceStatus]
    pod_device: list[type[msgspec.Struct]] = [poddevice.PodDeviceSpec, poddevice.PodDeviceStatus]
    parts = list(dict.fromkeys(part for root in (*node_device, *pod_device) for part in _parts(root)))
    kinds = [_kind("NodeDevice", node_device), _kind("PodDevice", pod_device)]
    return "\n\n".join([_HEAD, *map(_part, parts), *kinds])


def _parts(form: Any) -> Iterator[type[msgspec.Struct]]:
    """Return the nested records; each follows the records that it contains."""
    for part in _inner(form):
        yield from _parts(part)
        yield part


def _inner(form: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for hint in get_type_hints(form).values():
        for each in (hint, *get_args(hint)):
            if isinstance(each, type) and issubclass(each, msgspec.Struct):
                yield each


def _part(form: type[msgspec.Struct]) -> str:
    return _record(_name(form), [form], list(_lines(form, "")))


def _kind(name: str, forms: list[type[msgspec.Struct]]) -> str:
    spec, status = forms
    lines = ['    meta: Meta = place("metadata", Meta)', *_lines(spec, "spec."), *_lines(status, "status.")]
    return _record(name, forms, lines)


def _record(name: str, forms: list[type[msgspec.Struct]], lines: list[str]) -> str:
    own = [
        f"\n{inspect.getsource(each.fget).rstrip()}"
        for form in forms
        for each in vars(form).values()
        if isinstance(each, property) and each.fget
    ]
    return "\n".join(["@dataclass(frozen=True, slots=True)", f"class {name}:", *lines, *own, ""])


def _lines(form: type[msgspec.Struct], base: str) -> Iterator[str]:
    hints = get_type_hints(form)
    for each in msgspec.structs.fields(form):
        if each.name in SKIPPED.get(form, ()):
            continue
        name = _FIELDS.get(f"{form.__name__}.{each.name}", _FIELDS.get(each.name, each.name))
        kind, default = _typed(hints[each.name])
        if isinstance(each.default, str):
            default = f'"{each.default}"'
        place = base + each.encode_name
        if place != camel(name) or default == "dict":
            default = f'place("{place}")' if default == '""' else f'place("{place}", {default})'
        yield f"    {name}: {kind} = {default}"


def _typed(hint: Any) -> tuple[str, str]:
    """Return the type and the default of a field as source code. A text is never None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        kind, default = _typed(arguments[0])
        return (kind, default) if arguments[0] is str else (f"{kind} | None", "None")
    if origin in (list, tuple) and arguments[0] is nodedevice.ConditionStatus:
        return f"Mapping[str, {_name(arguments[0])}]", "dict"
    if origin in (list, tuple):
        return f"tuple[{_typed(arguments[0])[0]}, ...]", "()"
    if origin is dict:
        return "Mapping[str, str]", "dict"
    return _name(hint), _BLANK.get(hint, "None")


def _name(form: type) -> str:
    return _RECORDS.get(form.__name__, form.__name__.removesuffix("Status"))


if __name__ == "__main__":
    main()
