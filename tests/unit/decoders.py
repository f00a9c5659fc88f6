"""Finds every place of the product where what others have written is decoded, and every form it is decoded in."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.unit.sources import ROOT, parsed, shown

SOURCES: Final = ("proto/src", "common/src", "kube/src", "operator/src", "node-agent/src", "cli/src")
# the entrance, and what each of its functions is given its form in
ENTRANCE: Final[dict[str, dict[str, int | None]]] = {
    "nodedevice_common.decoding": {"decode": 1, "convert": 1, "decode_unique": None, "shallow": None},
    "nodedevice_common.yaml_decoding": {"decode_yaml": None},
    "nodedevice_kube.decoding": {"decode_json": None, "decode_yaml": None, "decode_documents": None},
}
# What of the operator goes through it, and raises ApiError instead.
OF_OPERATOR: Final = {"decode": 3, "decode_record": 3, "decode_list": 2}
_OPERATOR: Final = "nodedevice_operator.kube.decode"
# decoders of libraries, by the module that has them
_DECODERS: Final = {
    "msgspec": {"convert"},
    "msgspec.json": {"decode", "Decoder"},
    "msgspec.msgpack": {"decode", "Decoder"},
    "msgspec.yaml": {"decode"},
    "msgspec.toml": {"decode"},
    "json": {"load", "loads", "JSONDecoder"},
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load", "parse", "compose"},
    "tomllib": {"load", "loads"},
    "pickle": {"load", "loads"},
    "marshal": {"load", "loads"},
    "copy": {"deepcopy"},
    "sys": {"setrecursionlimit"},
}


class Call(NamedTuple):
    """function: the innermost around it, "" at the top of the module. what: as "json.loads"."""

    path: Path
    line: int
    function: str
    what: str
    node: ast.Call

    @property
    def where(self) -> str:
        return f"{shown(self.path)}:{self.line}: {self.what} in {self.function or 'the module'}"


def files() -> Iterator[Path]:
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            if "upstream" not in path.parts:
                yield path


@cache
def calls() -> tuple[Call, ...]:
    """Of all functions that are imported from other modules, by their full names."""
    return tuple(call for path in files() for call in _within(path, parsed(path), "", dict(_imported(parsed(path)))))


def library_decoders() -> list[Call]:
    """Calls of a decoder that are not of the entrance; and of `json()` of a response."""
    return [call for call in calls() if _is_decoder(call)]


def _is_decoder(call: Call) -> bool:
    module, _, name = call.what.rpartition(".")
    is_response = name == "json" and isinstance(call.node.func, ast.Attribute) and module not in ("msgspec",)
    return name in _DECODERS.get(module, ()) or is_response


@cache
def forms() -> dict[str, Any]:
    """Every form that something is decoded in, by its name; what is a parameter of a function comes from its callers."""
    places: dict[str, int | None] = {
        f"{module}.{name}": i for module, functions in ENTRANCE.items() for name, i in functions.items()
    }
    places |= {f"{_OPERATOR}.{name}": i for name, i in OF_OPERATOR.items()}
    found: dict[str, Any] = {}
    for call in calls():
        index = places.get(call.what)
        if call.what.endswith("._pages"):
            index = 2
        if index is not None and len(call.node.args) > index:
            text = ast.unparse(call.node.args[index])
            names = dict(vars(importlib.import_module(_module(call.path))))
            with suppress(NameError):
                found[f"{_module(call.path)}: {text}"] = eval(text, names)
    return found


def import_all() -> None:
    """Every module of the product, so that all kinds are known."""
    for package in ("nodedevice_api", "nodedevice_common", "nodedevice_operator", "nodedevice_agent"):
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if "upstream" not in found.name and not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _module(path: Path) -> str:
    source = next(ROOT / source for source in SOURCES if path.is_relative_to(ROOT / source))
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _within(path: Path, node: ast.AST, function: str, imported: dict[str, str]) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call) and (what := _name(child.func, imported)):
            yield Call(path, child.lineno, name, what, child)
        yield from _within(path, child, name, imported)


def _name(func: ast.expr, imported: dict[str, str]) -> str:
    first, _, rest = ast.unparse(func).partition(".")
    return f"{imported.get(first, first)}{'.' if rest else ''}{rest}"


def _imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                for each in names:
                    first = each.name.partition(".")[0]
                    yield each.asname or first, each.name if each.asname else first
            case ast.ImportFrom(module=str(source), names=names):
                for each in names:
                    yield each.asname or each.name, f"{source}.{each.name}"
