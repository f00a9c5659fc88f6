"""Writes the plugins of crds/nodedeviceconfigs.yaml from the agent's settings: each key with type, bounds, default and meaning.

The settings of the agent are the one source: what they take, the kind takes, and `kubectl explain` says of it what docs/settings.md
says. A key that an object does not know is kept, so that the agent refuses it by name. Pruned it would be lost without a word where
a client does not validate, and below an object that keeps such keys in a server-side apply too, even a strict one. Run by
`make generate`, before the copies of crds/ are made.
"""

import textwrap
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect as shapes
from nodedevice_agent.configs.effective import ConfiguredPlugins
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

from docs.generate_settings import alternatives, default_of, fields, meanings

Schema = dict[str, Any]

CRD: Final = Path(__file__).parents[1] / "crds" / "nodedeviceconfigs.yaml"
BEGIN: Final = "# from here to the mark below: made from the agent's settings by `make generate`"
END: Final = "# made from the agent's settings until here"
# Keys that the agent refuses here, which is better said than pruned.
_REFUSED: Final[dict[tuple[type[msgspec.Struct], str], str]] = {
    (NvmlSettings, "library_dir"): "Not allowed in a NodeDeviceConfig: set it in agents.config of the chart."
}
# Bounds where the settings have none, or wider ones than fit into an object of the API.
_MOST_OBJECTS: Final = 64
_MOST_VALUES: Final = 1000
_LONGEST: Final = 4096
_LONGEST_VALUE: Final = 32768
_EMPTY: Final = frozenset({"", '""', "[]", "{}"})
_NAME: Final = {"minLength": 3, "maxLength": 308, "pattern": "^[^/]+/[^/]+$"}


def plugins() -> Schema:
    """`spec.plugins` by key."""
    found: Schema = object_of(ConfiguredPlugins)["properties"]
    return found


def object_of(kind: type[msgspec.Struct]) -> Schema:
    """The schema of an object with these settings. Raises ValueError for a type without schema, or a field without comment."""
    explained = meanings(kind)
    properties = {key: _property(kind, field, explained[key]) for key, field in fields(kind)}
    required = [key for key, field in fields(kind) if field.required]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": properties,
    }


def _property(kind: type[msgspec.Struct], field: shapes.Field, meaning: str) -> Schema:
    found = type_of(field.type)
    if field.required and field.name == "resource_name":
        found |= _NAME
    default = default_of(field)
    said = [
        f"{meaning.removesuffix('.')}.",
        *([f"Default: {default}."] if default not in _EMPTY else []),
        *([_REFUSED[kind, field.name]] if (kind, field.name) in _REFUSED else []),
    ]
    return {"description": " ".join(said), **found}


def type_of(kind: shapes.Type) -> Schema:
    """The schema of a value. Raises ValueError."""
    [one] = alternatives(kind)
    nullable = {"nullable": True} if one is not kind else {}
    return _type_of(one) | nullable


def _type_of(kind: shapes.Type) -> Schema:
    match kind:
        case shapes.LiteralType(values=values):
            return {"type": "string", "maxLength": max(map(len, map(str, values))), "enum": list(values)}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.IntType() | shapes.FloatType():
            name = "integer" if isinstance(kind, shapes.IntType) else "number"
            return {"type": name} | _bounds(kind)
        case shapes.StrType():
            return {"type": "string", "maxLength": _LONGEST if kind.max_length is None else kind.max_length}
        case shapes.DictType(value_type=value, max_length=most):
            each = {**type_of(value), "maxLength": _LONGEST_VALUE}
            return {"type": "object", "maxProperties": most or _MOST_VALUES, "additionalProperties": each}
        case shapes.ListType():
            return _list_of(kind)
        case shapes.StructType(cls=inner):
            return object_of(inner)
    raise ValueError(f"no schema for {kind}")


def _bounds(kind: shapes.IntType | shapes.FloatType) -> Schema:
    """As OpenAPI has them."""
    bounds = {"minimum": kind.ge if kind.gt is None else kind.gt, "maximum": kind.le if kind.lt is None else kind.lt}
    outside = {"exclusiveMinimum": kind.gt is not None, "exclusiveMaximum": kind.lt is not None}
    found = {key: value for key, value in bounds.items() if value is not None}
    return found | {key: value for key, value in outside.items() if value}


def _list_of(kind: shapes.ListType) -> Schema:
    item = type_of(kind.item_type)
    most = kind.max_length if kind.max_length is not None else _MOST_VALUES
    keys: Schema = {"x-kubernetes-list-type": "atomic"}
    if item["type"] == "object":
        most = min(most, _MOST_OBJECTS)
        if "resourceName" in item.get("required", ()):
            keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["resourceName"]}
    least = {"minItems": kind.min_length} if kind.min_length else {}
    return {"type": "array", **least, "maxItems": most, **keys, "items": item}


def with_plugins(text: str) -> str:
    """The definition with that part of today's settings. Raises ValueError where its marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{CRD.name} needs the lines {BEGIN!r} and {END!r}")
    indent = before.rpartition("\n")[2]
    made = yaml.safe_dump(plugins(), sort_keys=False, default_flow_style=None, width=10_000)
    return f"{before}{begin}\n{textwrap.indent(made, indent)}{indent}{end}{after}"


def main() -> None:
    CRD.write_text(with_plugins(CRD.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
