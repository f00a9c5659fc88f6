"""Describes fields of a schema. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nodedevice_kube.config_rules import range_of

Schema = Mapping[str, Any]


def at(schema: Schema, words: Sequence[str]) -> Schema | None:
    """Return the schema of a field, through lists with or without an index; None if it is unknown."""
    for word in words:
        schema = inner(schema)
        found = schema.get("properties", {}).get(re.sub(r"\[\d*\]$", "", word))
        if found is None:
            return None
        schema = found
    return schema


def stored(value: Any, schema: Schema) -> Any:
    """Remove null fields, as an API server does.

    Keys of maps stay: a selector without its only label would select all nodes.
    """
    if isinstance(value, list):
        return [stored(each, schema.get("items", {})) for each in value]
    if not isinstance(value, dict):
        return value
    fields: Schema = schema.get("properties", {})
    return {
        key: stored(each, fields.get(key, {})) for key, each in value.items() if each is not None or key not in fields
    }


def inner(schema: Schema) -> Schema:
    """Return the schema of a list's entries; any other schema itself."""
    while schema.get("type") == "array":
        schema = schema.get("items", {})
    return schema


def type_of(schema: Schema) -> str:
    """Return words such as `list of objects`, `text, one of a, b`, `whole number, 0, to 100`."""
    kind: str = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(kind, kind)
    if "enum" in schema:
        words += f", one of {', '.join(map(str, schema['enum']))}"
    if "minimum" in schema or "maximum" in schema:
        words += f", {range_of(schema)}"
    return words
