"""Writes docs/api.md from crds/*.yaml: every field with its type and description. Run by `make generate`.

Lengths of texts, and rules for what agents and the operator write, are left to the definitions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from docs import tables

_ROOT = Path(__file__).parents[1]
_INTRO = """# API reference

With this page you can read and write the objects of group `nodedevice.io`, version `v1alpha1`.

- `kubectl explain nodedevice.status` shows the same texts; the page is made from `crds/`.
- `*` marks a required field of `spec`, `≤` the longest list.
- `--field-selector` takes `spec.nodeName` and, for NodeDevices, `spec.resourceName`.
- A NodeDevice has `healthy`, `cordoned` and `allocated + releasing + available` of at most `total`,
  and `available` of at most `healthy`.
"""
# fields with a page of their own
_ELSEWHERE: Final = {"spec.plugins": "[all keys](settings.md)"}
_CONDITION: Final = frozenset({"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"})


def main() -> None:
    kinds = [yaml.safe_load(path.read_text()) for path in sorted((_ROOT / "crds").glob("*.yaml"))]
    shown: dict[frozenset[str], str] = {_CONDITION: ""}
    text = _INTRO + "".join(f"\n{part}" for kind in kinds for part in _kind(kind, shown))
    (_ROOT / "docs" / "api.md").write_text(text.rstrip() + "\n")


def _kind(crd: dict[str, Any], shown: dict[frozenset[str], str]) -> Iterator[str]:
    spec, version = crd["spec"], crd["spec"]["versions"][0]
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    about = f"{schema['description']} {spec['scope']}-scoped; short name `{names['shortNames'][0]}`."
    yield f"## {names['kind']}\n\n{tables.wrapped(about)}\n"
    rows = list(_rows(schema, "", names["kind"], shown))
    below = [f"`{row.path}`: {row.rest}" for row in rows if row.rest]
    yield tables.table("| field | type | meaning |", [row.line for row in rows], below)
    if rules := list(_rules(schema["properties"]["spec"], "spec")):
        yield "The API server refuses a `spec` that breaks one of these rules:\n\n" + "".join(rules)


@dataclass(frozen=True)
class _Row:
    """A field. rest: the part of its description that does not fit into the table."""

    path: str
    line: str
    rest: str


def _rows(schema: dict[str, Any], path: str, kind: str, shown: dict[frozenset[str], str]) -> Iterator[_Row]:
    """shown: where objects with these fields are described already, so that each is described once."""
    for name, field in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        here = f"{path}.{name}" if path else name
        inner = field.get("items", field)
        is_list = field["type"] == "array"
        keys = frozenset(inner.get("properties", ()))
        earlier = shown.get(keys) if is_list else None
        note = f" Fields as in {earlier}." if earlier else f" See {link}." if (link := _ELSEWHERE.get(here)) else ""
        cell, rest = tables.divided(_description(field) + note)
        shown_path = here + "[]" * is_list
        star = "\\*" if path in ("", "spec") and name in schema.get("required", ()) else ""
        yield _Row(shown_path, f"| `{shown_path}`{star} | {_type(field, keys)} | {cell} |", rest)
        if keys and earlier is None and here not in _ELSEWHERE:
            if is_list:
                shown[keys] = f"`{kind}.{shown_path}`"
            yield from _rows(inner, shown_path, kind, shown)


def _type(field: Mapping[str, Any], keys: frozenset[str]) -> str:
    kind = field["type"]
    if kind == "array":
        name = "conditions" if keys == _CONDITION else f"{field['items']['type']}s"
        return f"{name}, ≤ {field['maxItems']}"
    if "enum" in field:
        return " \\| ".join(str(value) for value in field["enum"])
    if "additionalProperties" in field:
        return f"map to {field['additionalProperties']['type']}"
    return str(field.get("format", kind))


def _description(field: Mapping[str, Any]) -> str:
    return " ".join(field.get("description", "").split()).replace("|", "\\|")


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield tables.wrapped(f"- `{path}`: {rule['message']}", "  ") + "\n"
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if here in _ELSEWHERE:
            continue
        yield from _rules(field, here)
        if "items" in field:
            yield from _rules(field["items"], f"{here}[]")


if __name__ == "__main__":
    main()
