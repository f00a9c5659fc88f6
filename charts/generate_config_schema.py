"""Writes the plugins of crds/nodedeviceconfigs.yaml from the agent's settings: each key with type, bounds, default and meaning.

The agent's settings are the only source: the kind accepts the same values, and `kubectl explain` has the texts of docs/settings.md.
The API server keeps unknown keys, so that the agent can refuse them by name. It would prune them silently for clients that do not
validate, and in server-side apply below an object that keeps unknown keys, even with strict validation. Run by
`make generate`, before the copies of crds/ are made.
"""

import json
import textwrap
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect as shapes
from nodedevice_agent.plugins.settings import LISTED, ConfiguredPlugins

from charts.config_rules import CONFIG_RULES, MAX_PATH, RULES, Rule
from docs.generate_settings import alternatives, default_of, fields, meanings

Schema = dict[str, Any]
Rules = Mapping[type[msgspec.Struct], dict[str, Rule]]

CRD: Final = Path(__file__).parents[1] / "crds" / "nodedeviceconfigs.yaml"
BEGIN: Final = "# from here to the mark below: made from the agent's settings by `make generate`"
END: Final = "# made from the agent's settings until here"
# Bounds for settings without bounds, or with bounds too wide for an object of the API.
_MOST_VALUES: Final = 1000
_LONGEST: Final = MAX_PATH
_LONGEST_VALUE: Final = 32768
_EMPTY: Final = frozenset({"", '""', "[]", "{}"})
# rules of a text or a map that a schema of the API cannot express
_OURS: Final = frozenset({"x-rules", "x-keys", "x-or-empty", "x-example"})


def plugins() -> Schema:
    """Return the rules of `spec.plugins` in an object of the API."""
    return object_of(ConfiguredPlugins, CONFIG_RULES)


def object_of(
    kind: type[msgspec.Struct], others: Mapping[type[msgspec.Struct], dict[str, Rule]] | None = None
) -> Schema:
    """The rules of an object with these settings. others: instead of RULES, by settings.

    Raises ValueError for a type without schema, or a field without comment.
    """
    rules = {**RULES, **(others or {})}
    own = {key: rule for base in reversed(kind.__mro__) for key, rule in rules.get(base, {}).items()}
    explained = meanings(kind)
    properties = {key: _property(field, explained[key], own.get(key, {}), rules) for key, field in fields(kind)}
    required = [key for key, field in fields(kind) if field.required]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": properties,
        **own.get("", {}),
    }


def _property(field: shapes.Field, meaning: str, rule: Rule, rules: Rules) -> Schema:
    default = default_of(field)
    words = [f"{meaning.removesuffix('.')}.", *([f"Default: {default}."] if default not in _EMPTY else [])]
    return {"description": " ".join(words), **_joined(type_of(field.type, rules), rule)}


def _joined(schema: Schema, rule: Rule) -> Schema:
    """Return the schema of a type with its rules, which may concern nested values."""
    return {
        **schema,
        **{key: _joined(schema.get(key, {}), each) if isinstance(each, dict) else each for key, each in rule.items()},
    }


def type_of(kind: shapes.Type, rules: Rules) -> Schema:
    """The schema of a value. Raises ValueError."""
    [one] = alternatives(kind)
    nullable = {"nullable": True} if one is not kind else {}
    return _type_of(one, rules) | nullable


def _type_of(kind: shapes.Type, rules: Rules) -> Schema:
    match kind:
        case shapes.LiteralType(values=values):
            return {"type": "string", "maxLength": max(map(len, map(str, values))), "enum": list(values)}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.IntType() | shapes.FloatType():
            name = "integer" if isinstance(kind, shapes.IntType) else "number"
            return {"type": name} | _bounds(kind)
        case shapes.StrType():
            pattern = {"pattern": kind.pattern} if kind.pattern else {}
            return {"type": "string", "maxLength": _LONGEST if kind.max_length is None else kind.max_length, **pattern}
        case shapes.DictType(value_type=value, max_length=most):
            each = type_of(value, rules)
            each |= {} if "enum" in each else {"maxLength": _LONGEST_VALUE}
            return {"type": "object", "maxProperties": most or _MOST_VALUES, "additionalProperties": each}
        case shapes.ListType():
            return _list_of(kind, rules)
        case shapes.StructType(cls=inner):
            return object_of(inner, rules)
    raise ValueError(f"no schema for {kind}")


def _bounds(kind: shapes.IntType | shapes.FloatType) -> Schema:
    """Convert to OpenAPI."""
    bounds = {"minimum": kind.ge if kind.gt is None else kind.gt, "maximum": kind.le if kind.lt is None else kind.lt}
    outside = {"exclusiveMinimum": kind.gt is not None, "exclusiveMaximum": kind.lt is not None}
    found = {key: value for key, value in bounds.items() if value is not None}
    return found | {key: value for key, value in outside.items() if value}


def _list_of(kind: shapes.ListType, rules: Rules) -> Schema:
    item = type_of(kind.item_type, rules)
    most = kind.max_length if kind.max_length is not None else _MOST_VALUES
    keys: Schema = {"x-kubernetes-list-type": "atomic"}
    if item["type"] == "object" and "resourceName" in item.get("required", ()):
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["resourceName"]}
    least = {"minItems": kind.min_length} if kind.min_length else {}
    return {"type": "array", **least, "maxItems": most, **keys, "items": item}


# -- rules for the API server -----------------------------------------------------------------------------------------

# Cheap checks of config_checks in CEL, for the API server; agents do all checks.
_IN_CEL: Final[dict[str, list[Schema]]] = {
    "simulated": [
        {
            "rule": "(has(self.count) ? self.count : 1) * (has(self.partsPerDevice) ? self.partsPerDevice : 1) <= 10000",
            "message": "count times partsPerDevice is more than 10000: simulate 10000 parts at most",
            "fieldPath": ".partsPerDevice",
        }
    ],
    "nvml": [
        {
            "rule": "!has(self.criticalXids) || !has(self.harmlessXids) || !self.harmlessXids.exists(x, x in self.criticalXids)",
            "message": "one is in criticalXids too; keep it in one of them",
            "fieldPath": ".harmlessXids",
        }
    ],
    "names": [
        {
            "rule": f"!has(self.{one}) || !has(self.{other}) || "
            f"!self.{other}.exists(s, self.{one}.exists(g, g.resourceName == s.resourceName))",
            "message": f"a resource is named in {one} too; give each resource one entry, with all its groups",
            "fieldPath": f".{other}",
        }
        for one, other in combinations(LISTED, 2)
    ],
}


def for_api(rule: Rule) -> Schema:
    """Return the rules for the API server: patterns, and cheap CEL. Agents check the rest."""
    found = {key: each for key, each in rule.items() if key not in _OURS}
    for key in ("items", "additionalProperties"):
        if isinstance(rule.get(key), dict):
            found[key] = for_api(rule[key])
    if "properties" in rule:
        found["properties"] = {key: for_api(each) for key, each in rule["properties"].items()}
    patterns = [] if "pattern" in rule else [each["is"] for each in rule.get("x-rules", ()) if "is" in each]
    if patterns:
        found["pattern"] = patterns[0]
    if "pattern" in found and rule.get("x-or-empty"):
        found["pattern"] = f"^$|{found['pattern']}"
        found |= {"allOf": [{"pattern": f"^$|{each['pattern']}"} for each in rule["allOf"]]} if "allOf" in rule else {}
    if in_cel := [each for one in rule.get("x-rules", ()) for each in _cel(one, rule)]:
        found["x-kubernetes-validations"] = in_cel
    return found


def _cel(one: Rule, rule: Rule) -> list[Schema]:
    if "check" in one:
        return _IN_CEL.get(one["check"], [])
    if "not" in one and rule.get("maxLength") != MAX_PATH:
        return [{"rule": f"!self.matches({json.dumps(one['not'])})", "message": one["message"]}]
    if "alone" in one:
        return [{"rule": f"!({json.dumps(one['alone'])} in self) || size(self) == 1", "message": one["message"]}]
    keys = one.get("oneOf") or one.get("anyOf") or one.get("excludes")
    if not keys:
        return []
    chosen = [_is_set(key, rule["properties"][key]) for key in keys]
    text = " || ".join(chosen) if "anyOf" in one else f"!({' && '.join(chosen)})"
    if "oneOf" in one:
        text = f"[{', '.join(chosen)}].filter(x, x).size() == 1"
    return [{"rule": text, "message": one["message"]}]


def _is_set(key: str, schema: Schema) -> str:
    here = f"self.{key}"
    match schema["type"]:
        case "boolean":
            return f"(has({here}) && {here})"
        case "object" if "properties" in schema:
            return f"(has({here}) && {here} != null)" if schema.get("nullable") else f"has({here})"
        case _:
            return f"(has({here}) && size({here}) > 0)"


def with_plugins(text: str) -> str:
    """Return the definition with the current settings inserted. Raises ValueError if its marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{CRD.name} needs the lines {BEGIN!r} and {END!r}")
    indent = before.rpartition("\n")[2]
    # a field that an apply empties is empty, and not null
    schema = {"x-kubernetes-map-type": "atomic", **for_api(plugins())}
    made = yaml.safe_dump(schema, sort_keys=False, default_flow_style=None, width=10_000)
    return f"{before}{begin}\n{textwrap.indent(made, indent)}{indent}{end}{after}"


def main() -> None:
    CRD.write_text(with_plugins(CRD.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
