"""Writes docs/settings.md: every key of the settings files, from the structures in the code and their comments.

A field is explained by the comment above it, or by an entry `name: text` in the structure's docstring. Run by `make generate`.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
_INTRO = """# Settings

Every key of the settings files, made from the code by `make generate`. In the chart these files are `agents.config`,
`operator.config` and `scheduler.extender.config`; it sets some of the keys itself.

- A key of a program's own table, but for `plugins`, is a flag and an environment variable as well: `nodeName` is `--node-name`
  and `NODEDEVICE_NODE_NAME`. A flag wins over the environment, and that over the file.
- An unknown key is an error, with the nearest known one.
- Examples are in [install](install.md#the-agents-configuration), [GPUs](gpu.md) and
  [device plugins](device-plugins.md#devices-by-usb-udev-and-subsystem).
"""
_ENTRY = re.compile(r"(?P<names>[a-z_]+(?:, [a-z_]+)*): (?P<text>.+)", re.DOTALL)
_WORD = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def explanations(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the code says of each field, by its name in Python; of those of base classes too.

    Raises ValueError for a field that nobody explains.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found |= _entries(base.__doc__ or "") | _comments(inspect.getsource(base))
    for field in msgspec.structs.fields(kind):
        if field.name not in found:
            raise ValueError(f"{kind.__name__}.{field.name} needs a comment above it that explains it")
    return found


def _entries(docstring: str) -> dict[str, str]:
    """Of `name, name: text` in a docstring; a continuation is indented, or follows a line that does not end a sentence."""
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
    """All of the page."""
    parts = [_INTRO]
    for program, kind in PROGRAMS.items():
        parts.append(f"\n## {program}\n\n{_table(kind)}")
        for inner, places in structures_below(kind).items():
            heading = ", ".join(f"`{place}`" for place in places)
            parts.append(f"\n### {heading}\n\n{purpose(inner)}\n\n{_table(inner)}")
    return "".join(parts)


def purpose(kind: type[msgspec.Struct]) -> str:
    """What these settings are for: the docstring, without what is about single fields."""
    return " ".join(re.split(r"\n\n(?=[a-z_]+(?:, [a-z_]+)*: )", inspect.cleandoc(kind.__doc__ or ""))[0].split())


def structures_below(kind: type[msgspec.Struct]) -> dict[type[msgspec.Struct], list[str]]:
    """The structures below this one, with all places where each is, in order."""
    found: dict[type[msgspec.Struct], list[str]] = {}
    for key, value in fields(kind):
        place, inner = key, value.type
        for each in alternatives(inner):
            if isinstance(each, shapes.ListType):
                place, each = f"{key}[]", each.item_type
            if isinstance(each, shapes.StructType):
                found.setdefault(each.cls, []).append(place)
                for below, places in structures_below(each.cls).items():
                    found.setdefault(below, []).extend(f"{place}.{name}" for name in places)
    return found


def fields(kind: type[msgspec.Struct]) -> Iterator[tuple[str, shapes.Field]]:
    """Each with its key."""
    info = shapes.type_info(kind)
    assert isinstance(info, shapes.StructType)
    for field in info.fields:
        yield field.encode_name, field


def _table(kind: type[msgspec.Struct]) -> str:
    explained = meanings(kind)
    rows, below = [], []
    for key, field in fields(kind):
        cell, rest = tables.divided(explained[key])
        default = default_of(field)
        shown = "required" if field.required else f"`{default}`" if default else ""
        rows.append(f"| `{key}` | {_type(field.type)} | {shown} | {_cell(cell)} |")
        below += [f"`{key}`: {rest.removesuffix('.')}."] if rest else []
    return tables.table("| key | type | default | meaning |", rows, below)


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the code says of each key, with keys for names of fields. Raises ValueError for a field that nobody explains."""
    explained = explanations(kind)
    keys = {field.name: key for key, field in fields(kind)}
    return {
        key: _capitalized(_WORD.sub(lambda word: f"`{keys[word[0]]}`" if word[0] in keys else word[0], explained[name]))
        for name, key in keys.items()
    }


def _capitalized(text: str) -> str:
    # not the names of others, such as idVendor
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+\b", text) else text


def _cell(text: str) -> str:
    return text.removesuffix(".").replace("|", "\\|")


def default_of(field: shapes.Field) -> str:
    """As JSON; empty where it has none, and for an object."""
    value: Any = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if field.required or value is None or isinstance(value, msgspec.Struct):
        return ""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def alternatives(kind: shapes.Type) -> list[shapes.Type]:
    """What a value may be, but for null."""
    every = list(kind.types) if isinstance(kind, shapes.UnionType) else [kind]
    return [each for each in every if not isinstance(each, shapes.NoneType)]


def _type(kind: shapes.Type) -> str:
    return " or ".join(_one_type(each) for each in alternatives(kind))


def _one_type(kind: shapes.Type) -> str:
    match kind:
        case shapes.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in sorted(map(str, values)))
        case shapes.BoolType():
            return "`true` or `false`"
        case shapes.IntType():
            return f"whole number{_bounds(kind)}"
        case shapes.FloatType():
            return f"number{_bounds(kind)}"
        case shapes.StrType():
            return "string"
        case shapes.ListType(item_type=item, max_length=most) | shapes.VarTupleType(item_type=item, max_length=most):
            return f"list of {_type(item)}" + (f", at most {most}" if most is not None else "")
        case shapes.DictType(value_type=value):
            return f"map to {_type(value)}"
        case shapes.StructType():
            return "object"
    raise ValueError(f"no words for {kind}")


def _bounds(kind: shapes.IntType | shapes.FloatType) -> str:
    least = f" from {kind.ge:g}" if kind.ge is not None else f" above {kind.gt:g}" if kind.gt is not None else ""
    return least + (f"{' to' if kind.ge is not None else ', at most'} {kind.le:g}" if kind.le is not None else "")


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
