"""The project's sources for tests of their style: each such test reads all of them once, and keeps what it found.

The trees of all files take hundreds of megabytes, so that none is kept for long.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@lru_cache(maxsize=8)
def parsed(path: Path) -> ast.Module:
    """Nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def modules(*programs: str) -> list[Path]:
    """Of the sources of these folders, without generated ones."""
    found = (path for program in programs for path in sorted((ROOT / program / "src").rglob("*.py")))
    return [path for path in found if "_pb2" not in path.name]


def shown(path: Path) -> str:
    """Relative to the repository, as people and exceptions name a file."""
    return path.relative_to(ROOT).as_posix()


def with_imports(files: Iterable[Path], package: str) -> Iterator[tuple[Path, ast.Module]]:
    """These files and, transitively, the modules of the top-level folder `package` that they import; each once."""
    found: set[Path] = set()
    rest = list(files)
    while rest:
        path = rest.pop()
        if path not in found:
            found.add(path)
            module = parsed(path)
            yield path, module
            rest += _imported(module, package)


def _imported(module: ast.Module, package: str) -> Iterator[Path]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                dotted = [name.name for name in names]
            case ast.ImportFrom(module=str(source), names=names, level=0):
                # what is imported is a module itself, or lies in one
                dotted = [source, *(f"{source}.{name.name}" for name in names)]
            case _:
                continue
        for name in dotted:
            file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(f"{package}.") and file.is_file():
                yield file
