"""The project's sources, parsed once for all tests that read them. Nobody may change a tree that comes from here."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text(path), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file: walking it costs as much as parsing."""
    return tuple(ast.walk(parsed(path)))


def shown(path: Path) -> str:
    """Relative to the repository, as people and exceptions name a file."""
    return path.relative_to(ROOT).as_posix()


def with_imports(files: Iterable[Path], package: str) -> frozenset[Path]:
    """These files and, transitively, the modules of the top-level folder `package` that they import."""
    found: set[Path] = set()
    rest = list(files)
    while rest:
        path = rest.pop()
        if path not in found:
            found.add(path)
            # most files import nothing from there, and need not be parsed
            rest += _imported(path, package) if f" {package}" in text(path) else ()
    return frozenset(found)


def _imported(path: Path, package: str) -> Iterator[Path]:
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                dotted = [name.name for name in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                # what is imported is a module itself, or lies in one
                dotted = [module, *(f"{module}.{name.name}" for name in names)]
            case _:
                continue
        for name in dotted:
            file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(f"{package}.") and file.is_file():
                yield file
