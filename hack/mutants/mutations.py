"""Every mutant of a file: its source with one place changed.

The operators are mutmut's, with three more. Only bodies of functions are changed: an error in code that runs at
import fails all tests or none. Not changed: annotations, log calls and their `extra`, and texts for people (texts
with a space). Left out: mutants that prove nothing (same.py).
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider
from mutmut.mutation.mutators import mutation_operators

from hack.mutants.changes import functions
from hack.mutants.same import proves_nothing

# on libcst's nodes, which mypy does not know unless libcst is installed
Node = Any
_LOGGERS = {"log", "_log", "logger", "_logger", "_LOG"}
_STATEMENTS = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


@dataclass(frozen=True)
class Mutant:
    """One change. file: from the repository's root. function: dotted, with its classes. lines: from 1; tests of these
    are run.

    before, after: the lines that differ, without indentation. text: the whole file, changed.
    """

    file: str
    function: str
    before: str
    after: str
    lines: range
    text: str
    occurrence: int = 1

    @property
    def id(self) -> str:
        """Constant while the function and these lines keep their text, anywhere in the file."""
        parts = (self.file, self.function, self.before, self.after, str(self.occurrence))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def mutants_of(root: Path, file: Path) -> list[Mutant]:
    """All mutants of one file, in the order of the source."""
    source = file.read_text(encoding="utf-8")
    name, seen = file.relative_to(root).as_posix(), Counter[tuple[str, str, str]]()
    whole = {line: each for _, each, _ in functions(source) for line in each}
    found = []
    for function, lines, text in _changes(source):
        before, after = _difference(source, text)
        if before == after or _proves_nothing(source, text, whole[lines.start]):
            continue
        seen[function, before, after] += 1
        found.append(Mutant(name, function, before, after, lines, text, seen[function, before, after]))
    return found


def _proves_nothing(source: str, text: str, function: range) -> bool:
    """function: its lines in the source."""
    old, new = source.split("\n"), text.split("\n")
    last = function.stop - 1 + len(new) - len(old)
    return proves_nothing(
        "\n".join(old[function.start - 1 : function.stop - 1]), "\n".join(new[function.start - 1 : last])
    )


def _changes(source: str) -> Iterator[tuple[str, range, str]]:
    """For each change: its function, its lines, and the whole changed text."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    lines, spans = wrapper.resolve(PositionProvider), wrapper.resolve(WhitespaceInclusivePositionProvider)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function, statement, node in _in_functions(wrapper.module):
        for changed in _changed(node):
            span = spans[node]
            first, last = (starts[at.line - 1] + at.column for at in (span.start, span.end))
            if source[first:last] != wrapper.module.code_for_node(node):
                text = wrapper.module.deep_replace(node, changed).code
            else:
                text = source[:first] + wrapper.module.code_for_node(changed) + source[last:]
            yield function, _lines(lines, statement, node), text


def _lines(lines: Node, statement: Node, node: Node) -> range:
    """Lines of a compound statement's header; all lines of a simple statement, as it may be one expression over many
    lines.
    """
    if isinstance(statement, cst.SimpleStatementLine):
        return range(lines[statement].start.line, lines[statement].end.line + 1)
    place = lines.get(node, lines[statement])
    last = place.start.line if isinstance(node, cst.Match) else place.end.line
    return range(place.start.line, last + 1)


def _in_functions(node: Node, names: tuple[str, ...] = (), statement: Node = None) -> Iterator[tuple[str, Node, Node]]:
    """The function, the innermost statement and the node itself, for all nodes that may be changed."""
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Parameters) or _is_for_people(node):
        return
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        names = (*names, node.name.value)
        is_inside = isinstance(node, cst.FunctionDef) or statement is not None
        statement = node if is_inside else None
        for child in node.body.children:
            yield from _in_functions(child, names, statement)
        return
    if isinstance(node, _STATEMENTS) and statement is not None:
        statement = node
    if statement is not None:
        yield ".".join(names), statement, node
    for child in node.children:
        yield from _in_functions(child, names, statement)


def _is_for_people(node: Node) -> bool:
    match node:
        case cst.SimpleString(value=text):
            return " " in text
        case cst.FormattedString(parts=parts):
            return any(isinstance(part, cst.FormattedStringText) and " " in part.value for part in parts)
        case cst.Call(func=cst.Attribute(value=cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)))):
            return name in _LOGGERS
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="extra"))]):
            return True  # the fields of a log call
    return False


def _changed(node: Node) -> Iterator[Node]:
    """Possible replacements of a node."""
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            found = list(operator(node))
            # changes of case prove no more than another text
            yield from found[:1] if isinstance(node, cst.BaseString) else found
    yield from _changed_by_ours(node)


def _changed_by_ours(node: Node) -> Iterator[Node]:
    match node:
        case cst.Expr(value=cst.Call() | cst.Await()) if not _is_for_people(node.value):
            yield cst.Pass()
        case cst.If() | cst.While() | cst.CompIf():
            test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            yield node.with_changes(
                test=cst.UnaryOperation(cst.Not(), test), **{_BEFORE_TEST[type(node)]: cst.SimpleWhitespace(" ")}
            )
        case cst.Return(value=value) if value is not None and not (
            isinstance(value, cst.Name) and value.value == "None"
        ):
            yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


_BEFORE_TEST = {
    cst.If: "whitespace_before_test",
    cst.While: "whitespace_after_while",
    cst.CompIf: "whitespace_before_test",
}


def _difference(source: str, text: str) -> tuple[str, str]:
    """The differing lines, joined, without indentation."""
    old, new = source.splitlines(), text.splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)
