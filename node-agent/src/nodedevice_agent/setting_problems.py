"""What to do about a wrong setting: the library says where it is, and this adds what may stand there. Reads only."""

import difflib
import re
from typing import Any

import msgspec
from msgspec import inspect

_PLACE = re.compile(r"`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]*)`")
_KEY_IN = " - at `key` in "
_SOME_VALUE = "[...]"


def explained(problem: str, raw: Any, kind: type[msgspec.Struct]) -> str:
    """msgspec's sentence about raw, which is to become that kind, with the remedy where there is one to name."""
    place = _PLACE.search(problem)
    path = place["path"] if place else ""
    expected, found = _at(path, inspect.type_info(kind), raw)
    unknown = _UNKNOWN_KEY.search(problem)
    if unknown and isinstance(expected, inspect.StructType):
        return problem + _known(unknown["key"], [field.encode_name for field in expected.fields])
    if problem.startswith("Invalid enum value") and isinstance(expected, inspect.LiteralType):
        return f"{problem}; choose one of {', '.join(map(str, expected.values))}"
    if isinstance(found, dict) and path.endswith(_SOME_VALUE):
        wrong = next((key for key, value in found.items() if not isinstance(value, str)), None)
        return problem if wrong is None else f"{problem}, of {wrong!s:.80}; write the value in quotes"
    if isinstance(found, dict) and _KEY_IN in problem:
        wrong = next((key for key in found if not isinstance(key, str)), None)
        return f"{problem}, the key {wrong!s:.80}; write it in quotes"
    return problem


def _known(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"


def _at(path: str, expected: inspect.Type, raw: Any) -> tuple[inspect.Type, Any]:
    """What is expected at a place such as `.plugins.generic[0]`, and what is there; of some value of a mapping, the mapping."""
    for name, index in _STEP.findall(path):
        expected = _but_null(expected)
        if name and isinstance(expected, inspect.StructType):
            expected = next(field.type for field in expected.fields if field.encode_name == name)
            raw = raw[name]
        elif index and isinstance(expected, inspect.ListType):
            expected, raw = expected.item_type, raw[int(index)]
    return _but_null(expected), raw


def _but_null(expected: inspect.Type) -> inspect.Type:
    if isinstance(expected, inspect.UnionType):
        return next(one for one in expected.types if not isinstance(one, inspect.NoneType))
    return expected
