"""Converts settings of a file or an API object. A mistake is an error that names its place and the remedy."""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from nodedevice_common.decoding import MOST_SHOWN, Undecodable, convert

S = TypeVar("S", bound=msgspec.Struct)

_PLACE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]*)`")
_SOME_VALUE = "[...]"


def converted(kind: type[S], raw: Any) -> S:
    """Raises ValueError, which names the place of the mistake."""
    try:
        return convert(raw, kind)
    except Undecodable as exc:
        raise ValueError(explained(exc, raw, kind)) from exc


def explained(error: Undecodable, raw: Any, kind: type[msgspec.Struct], *, shows_place: bool = True) -> str:
    """Explain why `raw` does not convert to that kind, with the remedy if one is known."""
    problem = str(error.__cause__)
    if not error.is_wrong_form or len(problem) > MOST_SHOWN:
        return str(error)  # some quote a value as long as that, and the place, at its end, is cut off
    place = _PLACE.search(problem)
    path = place["path"] if place else ""
    expected, found = _at(path, inspect.type_info(kind), raw)
    remedy = _remedy(problem, expected, found, is_key=bool(place and place["key"]), is_value=path.endswith(_SOME_VALUE))
    return (problem if shows_place else _PLACE.sub("", problem)) + remedy


def _remedy(problem: str, expected: inspect.Type, found: Any, *, is_key: bool, is_value: bool) -> str:
    unknown = _UNKNOWN_KEY.search(problem)
    if unknown and isinstance(expected, inspect.StructType):
        return _known(unknown["key"], [field.encode_name for field in expected.fields])
    if isinstance(found, dict) and isinstance(expected, inspect.DictType):
        if is_key:
            wrong = next((key for key in found if not isinstance(key, str)), None)
            return "" if wrong is None else f", the key {wrong!s:.80}; write it in quotes"
        if is_value:
            return _wrong_value(found, _without_null(expected.value_type))
    return _choices(expected) if problem.startswith("Invalid enum value") else ""


def _wrong_value(found: dict[Any, Any], expected: inspect.Type) -> str:
    """Name the value of the mapping that does not convert."""
    if isinstance(expected, inspect.LiteralType):
        wrong = next((key for key, value in found.items() if value not in expected.values), None)
        return f", of {wrong!s:.80}{_choices(expected)}"
    wrong = next((key for key, value in found.items() if not isinstance(value, str)), None)
    return "" if wrong is None else f", of {wrong!s:.80}; write the value in quotes"


def _choices(expected: inspect.Type) -> str:
    if not isinstance(expected, inspect.LiteralType):
        return ""
    return f"; choose one of {', '.join(map(str, expected.values))}"


def _known(key: str, known: list[str]) -> str:
    # imported late: a millisecond of each start, for a rare error
    import difflib

    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"


def _at(path: str, expected: inspect.Type, raw: Any) -> tuple[inspect.Type, Any]:
    """Return the expected type and the value at a place such as `.plugins.generic[0]`; of a mapping's value, the mapping."""
    for name, index in _STEP.findall(path):
        expected = _without_null(expected)
        if name and isinstance(expected, inspect.StructType):
            expected = next(field.type for field in expected.fields if field.encode_name == name)
            raw = raw[name]
        elif index and isinstance(expected, inspect.ListType):
            expected, raw = expected.item_type, raw[int(index)]
    return _without_null(expected), raw


def _without_null(expected: inspect.Type) -> inspect.Type:
    if isinstance(expected, inspect.UnionType):
        return next(one for one in expected.types if not isinstance(one, inspect.NoneType))
    return expected
