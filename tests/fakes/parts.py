"""Finds the parts of a composed program.

For tests of how parts are put together, where a missing argument is noticed late. Not for tests of what a part does.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from types import CoroutineType, FunctionType, MethodType
from typing import Any

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
