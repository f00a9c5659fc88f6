"""Measures the source: the size and shape of folders, files, functions and constructors.

    python -m hack.measure.tree [--root FOLDER]

Generated code and empty files are left out of the source. Lines are all lines, as `wc -l` counts them.
"""

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
_SOURCES: Final = {
    "agent": "node-agent/src",
    "operator": "operator/src",
    "common": "common/src",
    "kube": "kube/src",
    "api": "proto/src",
    "cli": "cli/src",
}
# rows for these, summed up
_PROGRAMS: Final = ("agent", "operator", "common")
_GENERATED: Final = re.compile(r"_pb2(_grpc)?\.pyi?$")
_NAMES_A_CALLABLE: Final = re.compile(r"\b(Callable|Coroutine|Awaitable)\b")
_SHORT_FILE, _LONG_FUNCTION, _MOST_CALLABLES = 75, 40, 2


@dataclass
class Shape:
    """Counts of one distribution, or of several. callables: by class, the constructor's parameters that are functions."""

    folders: Counter[Path] = field(default_factory=Counter)
    files: list[int] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    callables: Counter[str] = field(default_factory=Counter)

    def add(self, source: Path, aliases: re.Pattern[str]) -> None:
        text = source.read_text(encoding="utf-8")
        if not text.strip():
            return
        self.folders[source.parent] += 1
        self.files.append(text.count("\n"))
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes.append(node.name)
                self.callables[f"{source.stem}.{node.name}"] += sum(
                    bool(aliases.search(annotation)) for annotation in _constructor(node)
                )

    def rows(self) -> dict[str, str]:
        files, functions = sorted(self.files), sorted(self.functions)
        folders, callables = sorted(self.folders.values()), self.callables.values()
        return {
            "files": str(len(files)),
            "lines": str(sum(files)),
            "files in a folder, median / max": f"{_at(folders, 0.5)} / {folders[-1]}",
            "lines of a file, median / p90 / max": f"{_at(files, 0.5)} / {_at(files, 0.9)} / {files[-1]}",
            f"files below {_SHORT_FILE} lines": f"{sum(n < _SHORT_FILE for n in files) / len(files):.0%}",
            "lines of a function, median / p90 / max": f"{_at(functions, 0.5)} / {_at(functions, 0.9)} / {functions[-1]}",
            f"functions over {_LONG_FUNCTION} lines": f"{sum(n > _LONG_FUNCTION for n in functions) / len(functions):.1%}",
            "callables in constructors, all / most": f"{sum(callables)} / {max(callables)}",
            f"constructors with more than {_MOST_CALLABLES} callables": str(
                sum(n > _MOST_CALLABLES for n in callables)
            ),
            "class names that occur twice": str(len(self.repeated())),
        }

    def repeated(self) -> list[str]:
        """Names of several public classes."""
        return sorted(name for name, count in Counter(self.classes).items() if count > 1 and name[0] != "_")


def _constructor(node: ast.ClassDef) -> Iterator[str]:
    """The annotations of its constructor's parameters; of a dataclass, of its fields."""
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            parameters = (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)
            yield from (ast.unparse(found.annotation) for found in parameters if found.annotation is not None)
        elif isinstance(item, ast.AnnAssign) and "dataclass" in decorators:
            yield ast.unparse(item.annotation)


def _aliases(sources: Iterable[Path]) -> re.Pattern[str]:
    """Annotations for functions: Callable itself, and its aliases."""
    names = {"Callable"}
    for source in sources:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            is_type = isinstance(value, ast.Subscript) and _NAMES_A_CALLABLE.match(ast.unparse(value))
            if is_type and isinstance(target, ast.Name):
                names.add(target.id)
    return re.compile(rf"\b({'|'.join(sorted(names))})\b")


def _at(ordered: list[int], share: float) -> int:
    return ordered[int(share * (len(ordered) - 1) + 0.5)]


def _python(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if not _GENERATED.search(path.name))


def _lines(*folders: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for folder in folders for path in _python(folder))


def measure(root: Path) -> dict[str, Shape]:
    """Shapes by distribution, and `programs` for all of ours together."""
    sources = {name: _python(root / folder) for name, folder in _SOURCES.items() if (root / folder).is_dir()}
    aliases = _aliases(path for paths in sources.values() for path in paths)
    shapes = {name: Shape() for name in (*sources, "programs")}
    for name, paths in sources.items():
        for path in paths:
            shapes[name].add(path, aliases)
            if name in _PROGRAMS:
                shapes["programs"].add(path, aliases)
    return shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=REPOSITORY)
    root = parser.parse_args().root.resolve()
    shapes = measure(root)
    print(f"| | {' | '.join(shapes)} |\n|---|{'---|' * len(shapes)}")
    rows = {name: shape.rows() for name, shape in shapes.items()}
    for title in rows["programs"]:
        print(f"| {title} | {' | '.join(rows[name][title] for name in shapes)} |")
    tests = _lines(root / "tests", root / "hack")
    source = _lines(*(root / folder for folder in _SOURCES.values()))
    print(f"\nlines of tests and hack: {tests}; to the source's {source}: {tests / source:.2f}")
    print(f"class names that occur twice: {', '.join(shapes['programs'].repeated()) or 'none'}")
    most = [f"{name} {count}" for name, count in shapes["programs"].callables.most_common() if count > _MOST_CALLABLES]
    print(f"constructors with more than {_MOST_CALLABLES} callables: {', '.join(most) or 'none'}")
    out = REPOSITORY / "build/measure.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"root": str(root), "rows": rows, "tests_and_hack": tests}, indent=1) + "\n")


if __name__ == "__main__":
    main()
