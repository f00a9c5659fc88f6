"""What a composed program is made of, and whether each part begins as it is declared.

Of no use for what a part does: only for how parts are put together, where an argument that is missing is noticed late.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from types import CoroutineType, FunctionType, MethodType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

_CONTAINERS = (list, tuple, set, frozenset)


def parts_of(whole: object) -> list[object]:
    """All objects of ours that are reachable: by attributes, in containers, and as what a callback or a coroutine works with."""
    found: dict[int, object] = {}
    seen: dict[int, object] = {}
    todo: list[object] = [whole]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if type(part).__module__.startswith("nodedevice_") and not isinstance(part, type):
            found[id(part)] = part
        todo += _below(part)
    return [*found.values()]


def one_of(whole: object, kind: type[Any]) -> Any:
    """The only part of this kind: two would each know half."""
    found = [part for part in parts_of(whole) if isinstance(part, kind)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__}"
    return found[0]


def misfits(whole: object) -> list[str]:
    """Attributes that are not of the type that the constructor declares, for an argument of that name or for themselves."""
    found = []
    for part in parts_of(whole):
        for name, hint in _declared(type(part)):
            value = getattr(part, name, part)
            is_state = value is not part and getattr(value, "__self__", None) is not part
            if is_state and not _fits(value, hint):
                found.append(f"{type(part).__name__}.{name}: {value!r}")
    return found


def _below(part: object) -> list[object]:
    match part:
        case Mapping():
            return [*part.values()]
        case partial():
            return [part.func, *part.args, *part.keywords.values()]
        case MethodType():
            return [part.__self__]
        case FunctionType():
            return [inspect.getclosurevars(part).nonlocals]
        case CoroutineType():
            return [inspect.getcoroutinelocals(part)]
    if isinstance(part, _CONTAINERS):
        return [*part]
    if not type(part).__module__.startswith("nodedevice_"):
        return []
    names = {name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())}
    names |= getattr(part, "__dict__", {}).keys()
    return [getattr(part, name) for name in sorted(names) if hasattr(part, name)]


def _declared(kind: type) -> Iterator[tuple[str, Any]]:
    """Names of attributes, and their types as annotations."""
    names = vars(sys.modules[kind.__module__])
    for name, parameter in inspect.signature(kind).parameters.items():
        for attribute in (name, f"_{name}"):
            yield attribute, _resolved(parameter.annotation, names)
    if inspect.isfunction(vars(kind).get("__init__")):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
            match node:
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                    yield name, _resolved(ast.unparse(node.annotation), names)


def _resolved(hint: Any, names: Mapping[str, Any]) -> Any:
    """What is imported for the type check alone may be anything."""
    if not isinstance(hint, str):
        return Any if hint is inspect.Parameter.empty else hint
    try:
        found = eval(hint, dict(names))
    except (NameError, TypeError):
        return Any
    return _resolved(found, names)


def _fits(value: object, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if origin is Annotated:
        return _fits(value, get_args(hint)[0])
    if origin is Literal:
        return value in get_args(hint)
    kind = NoneType if hint is None else origin or hint
    if kind in (int, float):
        return isinstance(value, int | float)
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return value is not None
    try:
        return isinstance(value, kind)
    except TypeError:
        return value is not None
