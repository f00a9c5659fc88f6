"""Finds where a test's verdict depends on the clock of the machine: pauses, comparisons of elapsed time, short timeouts.

Pure: one parsed file in, findings out. It sees what one function says; a time that travels through an attribute or an argument
it misses. What ends a hang is no verdict: a timeout of a minute and more is allowed, and so is one of 0, which does not wait. In
a function or module marked `virtual_time` the loop's own clock may decide.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

PATIENCE_SECONDS: Final = 60
_PAUSES: Final = frozenset({"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"})
_CLOCKS: Final = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "time_ns"}
)
_DATES: Final = frozenset({"now", "utcnow", "today"})
_TIMEOUT_ERRORS: Final = frozenset({"TimeoutError", "TimeoutExpired", "timeout"})
_TIMEOUT_WORDS: Final = frozenset({"timeout", "timeout_seconds", "patience_seconds"})
# calls that take a timeout by position, and which position that is
_TIMEOUT_PLACES: Final = {
    **{"timeout": 0, "settimeout": 0, "stop_after_delay": 0, "wait": 0, "join": 0},
    **{"wait_for": 1, "communicate": 1, "wait_until": 2},
}


class Finding(NamedTuple):
    function: str  # with its classes and outer functions, dotted; empty for the module
    line: int
    what: str


def findings(module: ast.Module) -> list[Finding]:
    finder = _Finder(module)
    finder.visit(module)
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, module: ast.Module) -> None:
        self.found: list[Finding] = []
        self._imported = dict(_imported(module))
        self._numbers = dict(_numbers(module))
        self._inside: list[str] = []
        self._is_virtual = any(_is_marked(node) for node in module.body)
        self._times = frozenset(self._names_of_times(module))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        with self._scope(node.name, frozenset()):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        was_virtual = self._is_virtual
        self._is_virtual |= any(self._dotted(mark).endswith("virtual_time") for mark in node.decorator_list)
        with self._scope(node.name, frozenset(self._names_of_times(node))):
            self.generic_visit(node)
        self._is_virtual = was_virtual

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # also where it is handed on, as to a thread
        if self._dotted(node) == "time.sleep":
            self._report(node, "pauses")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if self._dotted(node) == "time.sleep":
            self._report(node, "pauses")

    def visit_Compare(self, node: ast.Compare) -> None:
        is_of_values = not any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        if is_of_values and any(self._is_time(operand) for operand in (node.left, *node.comparators)):
            self._report(node, "compares times")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        called = name.rpartition(".")[2]
        if name in _PAUSES and not (self._is_virtual and name == "asyncio.sleep"):
            self._visit_pause(node)
            return
        if not self._is_virtual:
            self._visit_timeouts(node, called)
        self.generic_visit(node)

    def _visit_timeouts(self, node: ast.Call, called: str) -> None:
        if called == "raises" and any(self._is_timeout_error(part) for given in node.args for part in ast.walk(given)):
            self._report(node, "expects a timeout")
        if any(0 < seconds < PATIENCE_SECONDS for seconds in self._timeouts(node, called)):
            self._report(node, "times out within a minute")

    def _visit_pause(self, node: ast.Call) -> None:
        if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
            self._report(node, "pauses")
        for given in node.args:
            self.visit(given)

    def _timeouts(self, node: ast.Call, called: str) -> Iterator[float]:
        place = _TIMEOUT_PLACES.get(called)
        given = [] if place is None else node.args[place : place + 1]
        given += [keyword.value for keyword in node.keywords if keyword.arg in _TIMEOUT_WORDS]
        for value in given:
            match value:
                case ast.Constant(value=int() | float() as seconds):
                    yield seconds
                case ast.Name(id=name) if name in self._numbers:
                    yield self._numbers[name]

    def _is_timeout_error(self, node: ast.AST) -> bool:
        return isinstance(node, ast.expr) and self._dotted(node).rpartition(".")[2] in _TIMEOUT_ERRORS

    def _is_time(self, node: ast.expr) -> bool:
        """Reads a clock, or names what a clock was read into."""
        return any(
            self._is_clock(part) or (isinstance(part, ast.Name) and part.id in self._times) for part in ast.walk(node)
        )

    def _is_clock(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        owner, _, called = self._dotted(node.func).rpartition(".")
        if called in _DATES:
            return owner.rpartition(".")[2] in ("datetime", "date")
        if called == "time" and not node.args:
            return owner == "time" or not self._is_virtual
        return called in _CLOCKS

    def _names_of_times(self, scope: ast.AST) -> Iterator[str]:
        for node in _own_nodes(scope):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    pairs: list[tuple[ast.expr, ast.expr]] = list(zip(targets, values, strict=False))
                case ast.Assign(targets=targets, value=value):
                    pairs = [(target, value) for target in targets]
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.NamedExpr(target=target, value=value)
                ):
                    pairs = [(target, value)]
                case _:
                    continue
            for names, read in pairs:
                if any(self._is_clock(part) for part in ast.walk(read)):
                    yield from (part.id for part in ast.walk(names) if isinstance(part, ast.Name))

    def _dotted(self, node: ast.expr) -> str:
        """`asyncio.sleep` for what is imported under any name; a call in between is its function: `get_running_loop.time`."""
        match node:
            case ast.Name(id=name):
                return self._imported.get(name, name)
            case ast.Attribute(value=value, attr=attribute):
                return f"{self._dotted(value)}.{attribute}"
            case ast.Call(func=function):
                return self._dotted(function)
        return ""

    def _report(self, node: ast.expr, what: str) -> None:
        self.found.append(Finding(".".join(self._inside), node.lineno, what))

    @contextmanager
    def _scope(self, name: str, times: frozenset[str]) -> Iterator[None]:
        outer = self._times
        self._inside.append(name)
        self._times |= times
        yield
        self._inside.pop()
        self._times = outer


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Without what lies in a function or a class of its own."""
    rest = [*ast.iter_child_nodes(scope)]
    while rest:
        node = rest.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Name | ast.Constant):
            yield node
            rest += ast.iter_child_nodes(node)


def _is_marked(node: ast.stmt) -> bool:
    """`pytestmark = virtual_time`: all tests of the module."""
    match node:
        case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
            return any(isinstance(part, ast.Name) and part.id == "virtual_time" for part in ast.walk(value))
    return False


def _imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((name.asname, name.name) for name in names if name.asname)
            case ast.ImportFrom(module=str(source), names=names):
                yield from ((name.asname or name.name, f"{source}.{name.name}") for name in names)


def _numbers(module: ast.Module) -> Iterator[tuple[str, float]]:
    """Constants of the module that are numbers."""
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as number)):
                yield name, number
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() | float() as number)):
                yield name, number
