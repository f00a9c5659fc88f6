"""Finds functions that have changed since a commit, including uncommitted changes and new files. Asks git and reads the
working tree.

Functions are compared by name and text, so a function that only moved within its file, or with its file, has not changed.
"""

import ast
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path


def changed_since(commit: str, root: Path, folders: Sequence[str]) -> dict[str, list[range]]:
    """Lines of each function that has changed since `commit` left this branch, by file (from the root).

    Functions inside functions belong to the outer one, decorators to theirs. Raises ValueError, one line for people.
    """
    base = _base(commit, root)
    found = {}
    for before, after in _files(base, root, folders):
        old = _git(root, "show", f"{base}:./{before}") if before else ""
        try:
            lines = changed_functions(old, (root / after).read_text(encoding="utf-8"))
        except SyntaxError as exc:
            raise ValueError(f"{after} cannot be parsed: {exc}") from None
        if lines:
            found[after] = lines
    return found


def changed_functions(old: str, new: str) -> list[range]:
    """Lines, from 1, of each function of `new` that `old` lacks under the same name and text. Raises SyntaxError."""
    known = {(name, text) for name, _, text in functions(old)}
    return [lines for name, lines, text in functions(new) if (name, text) not in known]


def functions(source: str) -> Iterator[tuple[str, range, str]]:
    """Each outermost function: its dotted name with classes, its lines and its text. Raises SyntaxError."""
    by_line = source.splitlines()

    def walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, range, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                lines = range(first, (child.end_lineno or child.lineno) + 1)
                yield ".".join((*names, child.name)), lines, "\n".join(by_line[lines.start - 1 : lines.stop - 1])
            else:
                yield from walk(child, (*names, child.name) if isinstance(child, ast.ClassDef) else names)

    return walk(ast.parse(source), ())


def _base(commit: str, root: Path) -> str:
    _git(root, "rev-parse", "--git-dir")
    try:
        full = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").strip()
    except ValueError:
        raise ValueError(f"unknown commit: {commit} (a shallow clone has none of the older ones)") from None
    try:
        return _git(root, "merge-base", full, "HEAD").strip()
    except ValueError:
        raise ValueError(f"{commit} and the files here have no common history") from None


def _files(base: str, root: Path, folders: Sequence[str]) -> list[tuple[str, str]]:
    """Python files that differ from the base: their path there, empty if new, and their path here."""
    differing = ("diff", "--no-ext-diff", "--name-status", "-z", "--find-renames", "--diff-filter=d", "--relative")
    words = iter(_git(root, *differing, base, "--", *folders).split("\0"))
    found = []
    for kind in words:
        match kind[:1]:
            case "":
                continue
            case "A":
                found.append(("", next(words)))
            case "R":
                found.append((next(words), next(words)))
            case _:
                name = next(words)
                found.append((name, name))
    unknown = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *folders).split("\0")
    found += [("", name) for name in unknown if name]
    return sorted((before, after) for before, after in found if after.endswith(".py"))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, encoding="utf-8")
    except FileNotFoundError:
        raise ValueError("changes since a commit need git, which is not installed") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ValueError(f"no git history to compare with: git {arguments[0]}: {reason}")
    return done.stdout
