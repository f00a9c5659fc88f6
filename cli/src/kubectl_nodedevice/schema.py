"""Whether a value is as its schema says, and what a field means. Pure.

As much of OpenAPI as `schemas.json` has. A key that an object does not know is wrong, also where the API server keeps it: the agent
refuses it. What a schema cannot say is left to the agent.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Schema = Mapping[str, Any]
# problems of one document that are named
MOST: Final = 50
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_LONGEST_SHOWN: Final = 40


def problems(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """A sentence for each, beginning with its place."""
    here = path or "the document"
    if value is None and schema.get("nullable"):
        return
    kind = schema.get("type")
    if kind and not _is_of(value, kind):
        yield f"{here}: {_shown(value)} is no {_article(kind)}"
    elif isinstance(value, dict):
        yield from _of_object(value, schema, path)
    elif isinstance(value, list):
        yield from _of_list(value, schema, path)
    else:
        yield from _of_scalar(value, schema, here)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _article(kind: str) -> str:
    return {"object": "object with keys", "array": "list", "string": "text (quote it)", "integer": "whole number"}.get(
        kind, kind
    )


def _of_object(value: dict[Any, Any], schema: Schema, path: str) -> Iterator[str]:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{_below(path, key)}: is missing"
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: has {len(value)} keys, and at most {schema['maxProperties']} are possible"
    for key, each in value.items():
        name = str(key)
        if properties and name in properties:
            yield from problems(each, properties[name], _below(path, name))
        elif isinstance(others, dict):
            yield from problems(each, others, _below(path, name))
        elif properties:
            meant = difflib.get_close_matches(name, properties)
            hint = f"did you mean {meant[0]}?" if meant else f"there is {', '.join(sorted(properties)[:12])}"
            yield f"{_below(path, name)}: there is no such key; {hint}"


def _of_list(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{path}: has {len(value)} entries, and needs {schema['minItems']}"
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: has {len(value)} entries, and at most {schema['maxItems']} are possible"
    keys = schema.get("x-kubernetes-list-map-keys")
    seen: set[tuple[str, ...]] = set()
    for at, each in enumerate(value):
        yield from problems(each, schema.get("items", {}), f"{path}[{at}]")
        if keys and isinstance(each, dict):
            key = tuple(str(each.get(name)) for name in keys)
            if key in seen:
                yield f"{path}[{at}]: there are several of {', '.join(key)}"
            seen.add(key)


def _of_scalar(value: Any, schema: Schema, here: str) -> Iterator[str]:
    choices = schema.get("enum")
    if choices and value not in choices:
        yield f"{here}: {_shown(value)} is none of {', '.join(map(str, choices))}"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            least, most = schema.get("minLength", 0), schema.get("maxLength", "any")
            yield f"{here}: has {len(value)} characters; {least} to {most} are possible"
        pattern = schema.get("pattern")
        if pattern and not re.search(pattern, value):
            yield f"{here}: {_shown(value)} is not of the form {pattern}"
    elif isinstance(value, int | float):
        yield from _of_number(value, schema, here)


def _of_number(value: float, schema: Schema, here: str) -> Iterator[str]:
    least, most = schema.get("minimum"), schema.get("maximum")
    too_small = least is not None and (value < least or (value == least and schema.get("exclusiveMinimum")))
    too_big = most is not None and (value > most or (value == most and schema.get("exclusiveMaximum")))
    if too_small or too_big or value != value:
        yield f"{here}: {_shown(value)} is not possible; {_range(schema)} is"


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    from_least = f"more than {least}" if schema.get("exclusiveMinimum") else f"{least}"
    return from_least if most is None else f"at most {most}" if least is None else f"{from_least}, to {most}"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def at(schema: Schema, words: Sequence[str]) -> Schema | None:
    """The schema of a field, through lists; None where there is none."""
    for word in words:
        schema = inner(schema)
        found = schema.get("properties", {}).get(word.removesuffix("[]"))
        if found is None:
            return None
        schema = found
    return schema


def inner(schema: Schema) -> Schema:
    """Of a list that of its entries, of others itself."""
    while schema.get("type") == "array":
        schema = schema.get("items", {})
    return schema


def type_of(schema: Schema) -> str:
    """Such as `list of objects`, `text, one of a, b`, `whole number, 0, to 100`."""
    kind: str = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(kind, kind)
    if "enum" in schema:
        words += f", one of {', '.join(map(str, schema['enum']))}"
    if "minimum" in schema or "maximum" in schema:
        words += f", {_range(schema)}"
    return words
