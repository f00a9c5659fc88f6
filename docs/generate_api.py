"""Writes docs/api.md from crds/*.yaml: every field with its type, bounds and description. Run by `make generate`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from docs import tables

_ROOT = Path(__file__).parents[1]
_INTRO = """# API reference

Group `nodedevice.io`, version `v1alpha1`. Made from `crds/` by `make generate`; `kubectl explain` says the same.
"""


def main() -> None:
    kinds = [yaml.safe_load(path.read_text()) for path in sorted((_ROOT / "crds").glob("*.yaml"))]
    text = _INTRO + "".join(f"\n{part}" for kind in kinds for part in _kind(kind))
    (_ROOT / "docs" / "api.md").write_text(text.rstrip() + "\n")


def _kind(crd: dict[str, Any]) -> Iterator[str]:
    spec, version = crd["spec"], crd["spec"]["versions"][0]
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    scope = "one for each node and resource" if spec["scope"] == "Cluster" else "in the namespace of its pod"
    yield f"## {names['kind']}\n\n{schema['description']} {spec['scope']}-scoped, {scope}; short name `{names['shortNames'][0]}`.\n"
    rows = list(_rows(schema, ""))
    below = [f"`{row.path}`: {row.rest}" for row in rows if row.rest]
    yield tables.table("| field | type | what it says |", [row.line for row in rows], below)
    rules = list(_rules(schema, ""))
    if rules:
        yield "The API server refuses what breaks one of these:\n\n" + "".join(rules)


@dataclass(frozen=True)
class _Row:
    """A field. rest: of its description, what does not fit into the table."""

    path: str
    line: str
    rest: str


def _rows(schema: dict[str, Any], path: str) -> Iterator[_Row]:
    for name, field in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        here = f"{path}.{name}" if path else name
        inner = field.get("items", field)
        here += "[]" if field["type"] == "array" else ""
        needed = " (required)" if name in schema.get("required", ()) else ""
        cell, rest = tables.divided(_description(field))
        yield _Row(here, f"| `{here}`{needed} | {_type(field)} | {cell} |", rest)
        yield from _rows(inner, here)


def _type(field: dict[str, Any]) -> str:
    kind = field["type"]
    inner = field.get("items", {})
    if kind == "array":
        return f"list of {inner['type']}, at most {field['maxItems']}"
    if "enum" in field:
        return " \\| ".join(str(value) for value in field["enum"])
    if "additionalProperties" in field:
        return f"map to {field['additionalProperties']['type']}, at most {field['maxProperties']}"
    if kind == "string" and "maxLength" in field:
        return f"string, at most {field['maxLength']}"
    return str(field.get("format", kind))


def _description(field: dict[str, Any]) -> str:
    return " ".join(field.get("description", "").split()).replace("|", "\\|")


def _rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"- `{path or 'object'}`: {rule['message']}\n"
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield from _rules(field, here)
        if "items" in field:
            yield from _rules(field["items"], f"{here}[]")


if __name__ == "__main__":
    main()
