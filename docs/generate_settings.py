"""Writes the tables of docs/settings.md: every key of the settings files, from the structures in the code and their comments.

A field is explained by the comment above it, or by an entry `name: text` in the structure's docstring. The text of the page before
the first table is written by hand. Run by `make generate`.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as shapes
from nodedevice_agent.settings import AgentSettings
from nodedevice_operator.extender.settings import ExtenderSettings
from nodedevice_operator.settings import OperatorSettings

from docs import tables

PAGE = Path(__file__).parent / "settings.md"
PROGRAMS: dict[str, type[msgspec.Struct]] = {
    "nodedevice-agent": AgentSettings,
    "nodedevice-operator": OperatorSettings,
    "nodedevice-operator extender": ExtenderSettings,
}
MARK: Final = "<!-- tables: made from the code by `make generate` -->\n"
HEAD: Final = "| key | default | meaning |"
_ENTRY = re.compile(r"(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.+)", re.DOTALL)
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
# a definition of a field, or a key that a program shares with another one
Origin = tuple[str, ...]


@dataclass
class _Table:
    """The rows of one table, and the sentences that do not fit into them."""

    rows: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)

    def add(self, key: str, default: str, meaning: str) -> None:
        cell, rest = tables.divided(meaning)
        cell = cell.removesuffix(".").replace("|", "\\|")
        self.rows.append(f"| {key} | {default} | {cell} |")
        self.below += [f"{key}: {rest}."] if rest else []

    def text(self) -> str:
        return tables.table(HEAD, self.rows, self.below)


def explanations(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the explanation of each field by its name in Python, with the fields of base classes.

    Raises ValueError for a field without an explanation.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _entries(base.__doc__ or "") | _comments(inspect.getsource(base))
    for each in msgspec.structs.fields(kind):
        if each.name not in found:
            raise ValueError(f"{kind.__name__}.{each.name} needs a comment above it that explains it")
    return found


def _entries(docstring: str) -> dict[str, str]:
    """Return the entries `name, name: text` of a docstring. Every other line continues the entry above it."""
    found: dict[str, str] = {}
    for line in re.split(r"\n(?=[a-z_]+(?:, [a-z_]+)*: )", inspect.cleandoc(docstring)):
        match = _ENTRY.fullmatch(line.strip())
        if match:
            found |= dict.fromkeys(match["names"].split(", "), " ".join(match["text"].split()))
    return found


def _comments(source: str) -> dict[str, str]:
    lines = textwrap.dedent(source).splitlines()
    [definition] = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = _comment_above(lines, node.lineno - 1)
            if comment:
                found[node.target.id] = comment
    return found


def _comment_above(lines: list[str], index: int) -> str:
    comment: list[str] = []
    while index > 0 and lines[index - 1].lstrip().startswith("#"):
        index -= 1
        comment.insert(0, lines[index].strip("# "))
    return " ".join(comment)


def page() -> str:
    """Return the whole page: the text that is written by hand, then the tables."""
    by_hand, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE} needs the line {MARK!r}")
    return by_hand + mark + made()


def made() -> str:
    """Return the tables."""
    shown: dict[Origin, str] = {}
    parts = []
    for program, kind in PROGRAMS.items():
        parts.append(f"\n## {program}\n\n{_program_table(program, kind, shown).text()}")
        for place, inner in sections(kind):
            table = _Table()
            _add_fields(table, inner, "", place, shown)
            parts.append(f"\n### `{place}`\n\n{purpose(inner)}\n\n{table.text()}")
    return "".join(parts)


def sections(kind: type[msgspec.Struct]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield each structure with a table of its own: `plugins` of a program, and each plugin."""
    for key, value in fields(kind):
        if inner := structure_of(value.type):
            yield place_of(key, value.type), inner
            for below, plugin in fields(inner):
                if structure := structure_of(plugin.type):
                    yield f"{key}.{place_of(below, plugin.type)}", structure


def structure_of(kind: shapes.Type) -> type[msgspec.Struct] | None:
    """Return the structure that a value or each item of a list is; None for other types."""
    [one] = alternatives(kind)
    inner = one.item_type if isinstance(one, shapes.ListType) else one
    return inner.cls if isinstance(inner, shapes.StructType) else None


def place_of(key: str, kind: shapes.Type) -> str:
    return key + "[]" * isinstance(alternatives(kind)[0], shapes.ListType)


def purpose(kind: type[msgspec.Struct]) -> str:
    """Return the docstring without entries about single fields."""
    return " ".join(re.split(r"\n\n(?=[a-z_]+(?:, [a-z_]+)*: )", inspect.cleandoc(kind.__doc__ or ""))[0].split())


def fields(kind: type[msgspec.Struct]) -> Iterator[tuple[str, shapes.Field]]:
    """Yield each field with its key."""
    info = shapes.type_info(kind)
    assert isinstance(info, shapes.StructType)
    for found in info.fields:
        yield found.encode_name, found


def _program_table(program: str, kind: type[msgspec.Struct], shown: dict[Origin, str]) -> _Table:
    """The keys of a program. Keys that mean the same in an earlier program are one row."""
    table = _Table()
    explained = meanings(kind)
    shared: dict[str, list[str]] = {}
    for key, found in fields(kind):
        origin = (key, explained[key], default_cell(found))
        if earlier := shown.get(origin):
            shared.setdefault(earlier, []).append(f"`{key}`")
            continue
        shown[origin] = program
        table.add(f"`{place_of(key, found.type)}`", default_cell(found), explained[key])
    for earlier, keys in shared.items():
        table.rows.append(f"| {', '.join(keys)} | | As for {earlier} |")
    return table


def _add_fields(table: _Table, kind: type[msgspec.Struct], prefix: str, section: str, shown: dict[Origin, str]) -> None:
    """Add the fields of a structure and of those below it. A field that is shown already is not explained again.

    prefix: the place of the structure in this table. section: the place of the table. shown: where each definition is explained.
    """
    explained = meanings(kind)
    repeated: dict[str, list[str]] = {}
    for key, found in fields(kind):
        place = prefix + place_of(key, found.type)
        origin = _origin(kind, found.name)
        if earlier := shown.get(origin):
            repeated.setdefault(earlier, []).append(f"`{place}`")
            continue
        shown[origin] = f"{section}.{prefix}".rstrip(".")
        inner = structure_of(found.type)
        earlier = _place_of_all(inner, shown) if inner else ""
        table.add(f"`{place}`", default_cell(found), explained[key] + (f"; as `{earlier}`" if earlier else ""))
        if inner and not earlier and section.count(".") + bool(prefix):
            _add_fields(table, inner, f"{place}.", section, shown)
    for earlier, places in repeated.items():
        table.rows.append(f"| {', '.join(places)} | | As in `{earlier}` |")


def _place_of_all(kind: type[msgspec.Struct], shown: dict[Origin, str]) -> str:
    """Return where all fields of a structure are explained; "" for nowhere."""
    places = {shown.get(_origin(kind, found.name), "") for _, found in fields(kind)}
    return places.pop() if len(places) == 1 else ""


def _origin(kind: type[msgspec.Struct], name: str) -> Origin:
    """Return the class that defines a field, and the field."""
    owner = next(base for base in kind.__mro__ if name in inspect.get_annotations(base))
    return (owner.__qualname__, name)


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the explanation of each key, with keys for names of fields. Raises ValueError for a field without one."""
    explained = explanations(kind)
    keys = {found.name: key for key, found in fields(kind)}
    return {
        key: _capitalized(
            _WORD.sub(lambda word: f"`{keys[word[0]]}`" if word[0] in keys else word[0], explained[name])
        ).rstrip(".")
        for name, key in keys.items()
    }


def _capitalized(text: str) -> str:
    # not the names of others, such as idVendor
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+\b", text) else text


def default_of(found: shapes.Field) -> str:
    """Return the default as JSON; "" for none, and for an object."""
    value: Any = found.default if found.default_factory is msgspec.NODEFAULT else found.default_factory()
    if found.required or value is None or isinstance(value, msgspec.Struct):
        return ""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def default_cell(found: shapes.Field) -> str:
    """Return the default, and the other values or the bounds. An empty text and an unset value are an empty cell."""
    default = default_of(found)
    if found.required:
        return "required"
    shown = "" if default == '""' else default.strip('"') if default.startswith('"') else default
    others = _others(alternatives(found.type)[0], shown)
    return ", ".join(filter(None, [f"`{shown}`" if shown else "", others]))


def _others(kind: shapes.Type, default: str) -> str:
    match kind:
        case shapes.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in sorted(map(str, values)) if value != default)
        case shapes.IntType() | shapes.FloatType():
            return _bounds(kind)
        case shapes.ListType(item_type=item, max_length=most) | shapes.VarTupleType(item_type=item, max_length=most):
            others = [other for other in _others(item, "").split(", ") if other.strip("`") not in default]
            return ", ".join(filter(None, [*others, f"≤ {most}" if most is not None else ""]))
        case shapes.DictType(value_type=value):
            return _others(value, "")
    return ""


def _bounds(kind: shapes.IntType | shapes.FloatType) -> str:
    if kind.gt is not None:
        return f"> {kind.gt:g}" + (f", ≤ {kind.le:g}" if kind.le is not None else "")
    if kind.ge is None:
        return ""
    return f"{kind.ge:g}-{kind.le:g}" if kind.le is not None else f"≥ {kind.ge:g}"


def alternatives(kind: shapes.Type) -> list[shapes.Type]:
    """Return the types that a value may have, except null."""
    every = list(kind.types) if isinstance(kind, shapes.UnionType) else [kind]
    return [each for each in every if not isinstance(each, shapes.NoneType)]


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
